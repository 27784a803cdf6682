// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/tile_link/stream_exchange.hpp"

#include "src/runtime/tile_link/checks.hpp"
#include "src/runtime/wait.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>

namespace vocabpipe {

using cuda::check;
using cuda::has_ended;

StreamExchange::StreamExchange(StreamTeam& team, std::string name,
                               std::span<const TileLink::Outgoing> send,
                               std::span<const TileLink::Incoming> receive, TileLink::Order order)
    : team_(team), name_(std::move(name)) {
    const int members = static_cast<int>(send.size());
    for (const TileLink::Outgoing& part : send) {
        out_.push_back({.part = part});
        out_.back().ready.resize(part.ends.size());
    }
    for (const TileLink::Incoming& part : receive) in_.push_back({.part = part});
    const auto add_step = [&](int o, int piece) {
        const Step step{.to = (team_.self + o) % members,
                        .from = (team_.self + members - o) % members,
                        .piece = piece};
        if (piece < from(step.from).pieces()) from(step.from).steps.push_back(steps_.size());
        if (piece < std::max(to(step.to).pieces(), from(step.from).pieces())) {
            steps_.push_back(step);
        }
    };
    int most = 0;  // pieces of any member
    for (int m = 0; m < members; ++m) most = std::max({most, to(m).pieces(), from(m).pieces()});
    const bool by_member = order == TileLink::Order::by_member;
    for (int outer = 0; outer < (by_member ? members - 1 : most); ++outer) {
        for (int inner = 0; inner < (by_member ? most : members - 1); ++inner) {
            add_step(1 + (by_member ? outer : inner), by_member ? inner : outer);
        }
    }
    team_.current = this;
    try {
        // Receives wait for all earlier work of the pass's stream, which may use the memory.
        check(cudaEventRecord(team_.begin.get(), team_.pass), "cudaEventRecord");
        check(cudaStreamWaitEvent(team_.stream.get(), team_.begin.get(), 0), "cudaStreamWaitEvent");
        hand_over();
    } catch (...) {  // no destructor runs
        cancel();
        throw;
    }
}

StreamExchange::~StreamExchange() {
    if (!finished_) cancel();
}

/// Afterwards no stream touches the memory of the operation: enqueued work no longer waits for
/// another rank, so it runs to its end.
void StreamExchange::cancel() noexcept {
    team_.current = nullptr;
    team_.broken = true;
    team_.transport.cancel();
    (void)cudaStreamSynchronize(team_.stream.get());
}

// --- steps ---------------------------------------------------------------------------------------

void StreamExchange::hand_over() {
    for (; handed_over_ < steps_.size(); ++handed_over_) {
        Step& step = steps_[handed_over_];
        Outbox& out = to(step.to);
        Inbox& in = from(step.from);
        LinkStep moved{.to = step.to, .from = step.from, .done = team_.done[handed_over_]};
        if (step.piece < out.pieces()) {
            if (step.piece >= out.released) break;
            moved.send = tile_link::piece_of(out.part, step.piece);
            if (!moved.send.empty()) moved.ready = out.ready[static_cast<size_t>(step.piece)];
        }
        if (step.piece < in.pieces()) moved.receive = tile_link::piece_of(in.part, step.piece);
        step.ticket = team_.steps.start_step(team_.number, moved);
    }
    (void)progress();
}

bool StreamExchange::progress() {
    const size_t before = enqueued_;
    while (enqueued_ < handed_over_ && team_.steps.test_step(steps_[enqueued_].ticket)) ++enqueued_;
    return enqueued_ > before;
}

// --- what users call -----------------------------------------------------------------------------

void StreamExchange::copy_own(int pieces) {
    Outbox& out = to(team_.self);
    const Inbox& in = from(team_.self);
    for (; out.released < pieces; ++out.released) {
        const auto bytes = tile_link::piece_of(out.part, out.released);
        const auto target = tile_link::piece_of(in.part, out.released);
        if (bytes.empty() || bytes.data() == target.data()) continue;
        check(cudaMemcpyAsync(target.data(), bytes.data(), bytes.size(), cudaMemcpyDeviceToDevice,
                              team_.pass),
              "cudaMemcpyAsync");
    }
    check(cudaEventRecord(team_.own.get(), team_.pass), "cudaEventRecord");
}

void StreamExchange::release(int member, int pieces) {
    Outbox& out = to(member);
    tile_link::check_pieces(name_, "releases", member, pieces, out.pieces());
    if (pieces <= out.released) return;
    if (member == team_.self) {
        copy_own(pieces);
        return;
    }
    const cudaEvent_t ready = team_.ready[releases_++];
    check(cudaEventRecord(ready, team_.pass), "cudaEventRecord");
    while (out.released < pieces) out.ready[static_cast<size_t>(out.released++)] = ready;
    hand_over();
}

bool StreamExchange::test(int member, int pieces) {
    Inbox& in = from(member);
    tile_link::check_pieces(name_, "tests", member, pieces, in.pieces());
    if (pieces == 0) return true;
    cudaEvent_t event = team_.own.get();
    if (member == team_.self) {
        if (to(member).released < pieces) return false;
    } else {
        const size_t step = in.steps[static_cast<size_t>(pieces) - 1];
        (void)progress();
        if (enqueued_ <= step) return false;
        event = team_.done[step];
    }
    return has_ended(cudaEventQuery(event), "cudaEventQuery");
}

int StreamExchange::wait(int member, int pieces) {
    Inbox& in = from(member);
    tile_link::check_pieces(name_, "waits for", member, pieces, in.pieces());
    if (pieces == 0) return 0;
    if (member == team_.self) {  // copied by the pass's own stream
        if (to(member).released >= pieces) return to(member).released;
        throw UsageError(name_ + ": waits for piece " + std::to_string(pieces - 1) +
                         " of the rank's own part, which it has not released");
    }
    const size_t steps = in.steps[static_cast<size_t>(pieces) - 1] + 1;
    if (steps > handed_over_) {
        const Step& step = steps_[handed_over_];
        throw UsageError(name_ + ": waits for piece " + std::to_string(pieces - 1) + " of member " +
                         std::to_string(member) + " before it has released piece " +
                         std::to_string(step.piece) + " for member " + std::to_string(step.to) +
                         ", which goes first on a GPU; release in the order of to()");
    }
    await(steps);
    return pieces;
}

void StreamExchange::finish() {
    for (size_t m = 0; m < out_.size(); ++m) {
        if (out_[m].released == out_[m].pieces()) continue;
        throw UsageError(name_ + ": finishes before piece " + std::to_string(out_[m].released) +
                         " for member " + std::to_string(m) + " is released");
    }
    await(steps_.size());
    finished_ = true;
    team_.current = nullptr;
}

/// Lets the pass's stream wait for the first `steps` steps. The link's stream runs them in order,
/// so waiting for the last one is enough.
void StreamExchange::await(size_t steps) {
    if (steps <= awaited_) return;
    IdleWait idle(team_.wait);
    while (enqueued_ < steps) {
        if (progress()) {
            idle.reset();
            continue;
        }
        if (team_.options.poll) team_.options.poll();
        const IdleWait::Verdict verdict = idle.pause();
        if (verdict == IdleWait::Verdict::go_on) continue;
        throw CommunicationError(awaited() + idle.outcome(verdict));
    }
    check(cudaStreamWaitEvent(team_.pass, team_.done[steps - 1], 0), "cudaStreamWaitEvent");
    awaited_ = steps;
}

/// Text of the next step that is not enqueued: either side may be missing.
std::string StreamExchange::awaited() const {
    const Step& step = steps_[enqueued_];
    const bool receives = step.piece < in_[static_cast<size_t>(step.from)].pieces();
    const bool sends = step.piece < out_[static_cast<size_t>(step.to)].pieces();
    const auto text = [&](const char* what, int member) {
        return tile_link::piece_text(team_.transport.rank(), name_, what, member, step.piece,
                                     team_.options.ranks);
    };
    if (!receives) return text("waits until it is rid of", step.to);
    if (!sends) return text("waits for", step.from);
    return text("waits for", step.from) + ", or until it is rid of that for member " +
           std::to_string(step.to) + ",";
}

}  // namespace vocabpipe

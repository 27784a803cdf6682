// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/tile_link/exchange.hpp"

#include "src/runtime/tile_link/checks.hpp"
#include "vocabpipe/error.hpp"

#include <cstring>
#include <utility>

namespace vocabpipe {

namespace {

/// Runs `work`; adds to a transport's error which piece the transfer was for.
template <typename Work, typename Where>
auto say_where(Work&& work, Where&& where) {
    try {
        return work();
    } catch (const CommunicationError& error) {
        throw CommunicationError(where() + "; " + error.what());
    }
}

}  // namespace

HostExchange::HostExchange(HostTeam& team, std::string name,
                           std::span<const TileLink::Outgoing> send,
                           std::span<const TileLink::Incoming> receive, TileLink::Order /*order*/)
    : team_(team), name_(std::move(name)), number_(team.operations++) {
    const size_t members = send.size();
    out_.resize(members);
    in_.resize(members);
    for (size_t m = 0; m < members; ++m) {
        out_[m].part = send[m];
        in_[m].part = receive[m];
        out_[m].labels.resize(send[m].ends.size());
        out_[m].flights.resize(send[m].ends.size());
        in_[m].labels.resize(receive[m].ends.size());
        in_[m].flights.resize(receive[m].ends.size());
    }
    team_.current = this;
    try {
        for (size_t i = 1; i < members; ++i) {
            post_receives(
                static_cast<int>((static_cast<size_t>(team.self) + members - i) % members));
        }
    } catch (...) {  // no destructor runs
        team_.current = nullptr;
        team_.broken = true;
        team_.transport.cancel();
        throw;
    }
}

HostExchange::~HostExchange() {
    if (finished_) return;
    team_.current = nullptr;
    team_.broken = true;
    team_.transport.cancel();
}

// --- transfers -----------------------------------------------------------------------------------

void HostExchange::post_receives(int member) {
    Inbox& box = in_[static_cast<size_t>(member)];
    const std::span<const int> ranks = team_.from[static_cast<size_t>(member)];
    for (; box.started < box.pieces(); ++box.started) {
        const auto at = static_cast<size_t>(box.started);
        const auto post = [&](std::span<std::byte> bytes) {
            return team_.transport.start(
                {.what = Do::receive, .channel = team_.channel, .ranks = ranks, .receive = bytes});
        };
        say_where(
            [&] {
                box.flights[at].label = post(std::as_writable_bytes(std::span(&box.labels[at], 1)));
                box.flights[at].bytes = post(box.piece(box.started));
            },
            [&] { return where("expects", member, box.started); });
    }
}

void HostExchange::start_send(int member, int piece) {
    Outbox& box = out_[static_cast<size_t>(member)];
    const auto at = static_cast<size_t>(piece);
    const std::span<const std::byte> bytes = box.piece(piece);
    box.labels[at] = {number_, static_cast<uint32_t>(piece), static_cast<int64_t>(bytes.size())};
    const std::span<const int> ranks = team_.to[static_cast<size_t>(member)];
    const auto start = [&](std::span<const std::byte> what) {
        return team_.transport.start(
            {.what = Do::send, .channel = team_.channel, .ranks = ranks, .send = what});
    };
    say_where(
        [&] {
            box.flights[at].label = start(std::as_bytes(std::span(&box.labels[at], 1)));
            box.flights[at].bytes = start(bytes);
        },
        [&] { return where("sends", member, piece); });
}

/// Returns whether a piece has been sent.
bool HostExchange::advance_sends(int member) {
    Outbox& box = out_[static_cast<size_t>(member)];
    const int before = box.done;
    while (box.done < box.started) {
        Flight& flight = box.flights[static_cast<size_t>(box.done)];
        const bool done = say_where(
            [&] {
                if (!flight.label_done) flight.label_done = team_.transport.test(flight.label);
                return flight.label_done && team_.transport.test(flight.bytes);
            },
            [&] { return where("sends", member, box.done); });
        if (!done) break;
        ++box.done;
    }
    return box.done > before;
}

/// Returns whether a piece has arrived.
bool HostExchange::advance_receives(int member) {
    Inbox& box = in_[static_cast<size_t>(member)];
    const int before = box.done;
    while (box.done < box.started) {
        Flight& flight = box.flights[static_cast<size_t>(box.done)];
        const auto expects = [&] { return where("expects", member, box.done); };
        if (!flight.label_done) {
            if (!say_where([&] { return team_.transport.test(flight.label); }, expects)) break;
            flight.label_done = true;
            check_label(member, box.done);
        }
        if (!say_where([&] { return team_.transport.test(flight.bytes); }, expects)) break;
        ++box.done;
    }
    return box.done > before;
}

bool HostExchange::progress() {
    if (progressing_) return false;  // a poll of a poll
    progressing_ = true;
    const struct Leave {
        bool& flag;
        ~Leave() { flag = false; }
    } leave{progressing_};
    bool moved = false;
    const int members = static_cast<int>(out_.size());
    for (int member = 0; member < members; ++member) {
        if (member == team_.self) continue;
        if (advance_sends(member)) moved = true;
        if (advance_receives(member)) moved = true;
    }
    return moved;
}

/// Detects a lost or repeated piece by the label that arrives in its place.
void HostExchange::check_label(int member, int piece) const {
    const Inbox& box = in_[static_cast<size_t>(member)];
    const Label& label = box.labels[static_cast<size_t>(piece)];
    const auto bytes = static_cast<int64_t>(box.piece(piece).size());
    const auto expected = static_cast<uint32_t>(piece);
    if (label.operation == number_ && label.piece == expected && label.bytes == bytes) return;
    std::string text = where("expects", member, piece);
    if (label.operation != number_) {
        const bool later = static_cast<int32_t>(label.operation - number_) > 0;
        text += ", but piece " + std::to_string(label.piece) +
                (later ? " of a later operation came: this one was lost"
                       : " of an earlier operation came, a second time");
    } else if (label.piece != expected) {
        text += ", but piece " + std::to_string(label.piece) +
                (label.piece > expected ? " came: this one was lost" : " came a second time");
    } else {
        text += " of " + std::to_string(bytes) + " bytes, but one of " +
                std::to_string(label.bytes) + " bytes came";
    }
    throw CommunicationError(text);
}

// --- what users call -----------------------------------------------------------------------------

void HostExchange::check_pieces(int member, int pieces, int most, const char* what) const {
    tile_link::check_pieces(name_, what, member, pieces, most);
}

void HostExchange::release(int member, int pieces) {
    Outbox& box = out_.at(static_cast<size_t>(member));
    check_pieces(member, pieces, box.pieces(), "releases");
    for (; box.started < pieces; ++box.started) {
        if (member != team_.self) {
            start_send(member, box.started);
            continue;
        }
        const auto from = box.piece(box.started);
        const auto to = in_[static_cast<size_t>(member)].piece(box.started);
        if (from.data() != to.data() && !from.empty()) {
            std::memcpy(to.data(), from.data(), from.size());
        }
        ++box.done;
        ++in_[static_cast<size_t>(member)].done;
    }
}

bool HostExchange::test(int member, int pieces) {
    Inbox& box = in_.at(static_cast<size_t>(member));
    check_pieces(member, pieces, box.pieces(), "tests");
    if (box.done < pieces) (void)progress();
    return box.done >= pieces;
}

int HostExchange::wait(int member, int pieces) {
    Inbox& box = in_.at(static_cast<size_t>(member));
    check_pieces(member, pieces, box.pieces(), "waits for");
    if (member == team_.self && box.done < pieces) {
        throw UsageError(name_ + ": waits for piece " + std::to_string(pieces - 1) +
                         " of the rank's own part, which it has not released");
    }
    awaited_member_ = member;
    if (box.done < box.pieces()) (void)progress();
    wait_until([&] { return box.done >= pieces; });
    return box.done;
}

void HostExchange::finish() {
    for (size_t m = 0; m < out_.size(); ++m) {
        if (out_[m].started == out_[m].pieces()) continue;
        throw UsageError(name_ + ": finishes before piece " + std::to_string(out_[m].started) +
                         " for member " + std::to_string(m) + " is released");
    }
    awaited_member_ = -1;
    wait_until([&] {
        for (size_t m = 0; m < out_.size(); ++m) {
            if (out_[m].done < out_[m].pieces() || in_[m].done < in_[m].pieces()) return false;
        }
        return true;
    });
    finished_ = true;
    team_.current = nullptr;
}

// --- waiting -------------------------------------------------------------------------------------

template <typename Done>
void HostExchange::wait_until(Done&& done) {
    IdleWait idle(team_.wait);
    bool begins = true;
    while (!done()) {
        const auto& other_lane = team_.options.other_lane;
        if (progress() || (other_lane && other_lane(std::exchange(begins, false)))) {
            idle.reset();
            continue;
        }
        if (team_.options.poll) team_.options.poll();
        const IdleWait::Verdict verdict = idle.pause();
        if (verdict == IdleWait::Verdict::go_on) continue;
        throw CommunicationError(awaited() + idle.outcome(verdict));
    }
}

std::string HostExchange::where(const char* what, int member, int piece) const {
    return tile_link::piece_text(team_.transport.rank(), name_, what, member, piece,
                                 team_.options.ranks);
}

std::string HostExchange::awaited() const {
    return tile_link::missing_text(team_.transport.rank(), name_, in_, out_, awaited_member_,
                                   team_.options.ranks);
}

}  // namespace vocabpipe

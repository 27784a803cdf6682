// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/transport/nccl/transport.hpp"

#include "kernels/cuda/check.hpp"
#include "src/runtime/wait.hpp"
#include "src/schedule/ops.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

namespace vocabpipe::nccl {

namespace {

/// Makes NCCL launch in the order of the host's calls, where kernels of several communicators could
/// otherwise overtake each other. NCCL reads the variable when it initialises; a value set by the
/// user is kept.
void order_launches() {
    static std::once_flag once;
    std::call_once(once, [] { setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0); });
}

constexpr size_t kStreamChannels = 3;  ///< channels with a stream: forward, backward, collective

bool is_message(Do what) {
    return traits(what).point_to_point;
}

void copy(std::span<const std::byte> from, std::span<std::byte> to, cudaStream_t stream) {
    if (from.empty() || from.data() == to.data()) return;
    kernels::cuda::check(
        cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyDeviceToDevice, stream),
        "cudaMemcpyAsync");
}

std::string name_of_group(std::span<const int> ranks) {
    std::string name = "vocabpipe ranks";
    for (const int rank : ranks) name += " " + std::to_string(rank);
    return name;
}

}  // namespace

// --- life ----------------------------------------------------------------------------------------

NcclTransport::NcclTransport(Communicator& control, const TransportStreams& streams,
                             const Options& options)
    : control_(control),
      streams_(streams),
      options_(options),
      exceptions_(std::uncaught_exceptions()) {
    order_launches();
    std::vector<std::byte> id_bytes;
    control_.agree([&] {
        std::byte* memory = nullptr;
        kernels::cuda::check(
            cudaMalloc(reinterpret_cast<void**>(&memory), kStreamChannels * scratch_bytes()),
            "cudaMalloc");
        scratch_.reset(memory);
        if (rank() != 0) return;
        ncclUniqueId id;
        nccl::check(ncclGetUniqueId(&id), "ncclGetUniqueId", rank());
        const auto bytes = std::as_bytes(std::span(&id, 1));
        id_bytes.assign(bytes.begin(), bytes.end());
    });
    ncclUniqueId id;
    std::memcpy(&id, control_.all_gather(id_bytes).front().data(), sizeof id);
    everyone_ = std::make_unique<NcclCommunicator>(
        id, rank(), size(),
        CommunicatorOptions{.name = "vocabpipe everyone", .max_ctas = options.collective_ctas});
    wait_until("ncclCommInitRankConfig", [&] { return everyone_->ready(); });
    forward_ = split(true, {.name = "vocabpipe forward", .max_ctas = options.message_ctas});
    backward_ = split(true, {.name = "vocabpipe backward", .max_ctas = options.message_ctas});
}

NcclTransport::~NcclTransport() {
    if (dead_) return;
    if (std::uncaught_exceptions() > exceptions_) {
        cancel();
        return;
    }
    try {
        close();
    } catch (const std::exception&) {  // a rank failed meanwhile, which reports it itself
        cancel();
    }
}

void NcclTransport::close() {
    for_each_communicator([](NcclCommunicator& c) { c.finalize(); });
    for_each_communicator(
        [this](NcclCommunicator& c) { wait_until("ncclCommFinalize", [&] { return c.ready(); }); });
    for_each_communicator([](NcclCommunicator& c) { c.destroy(); });
}

void NcclTransport::cancel() noexcept {
    dead_ = true;
    queue_.clear();
    step_done_ = nullptr;
    NcclCommunicator* const launching = std::exchange(in_progress_, nullptr);
    // In one group: an abort tells the kernels of its communicator to end, then waits until all
    // enqueued ones have run. A kernel may wait behind a pass that waits for another communicator,
    // so all communicators are told first, and the end of the group waits for all at once. The one
    // that is launching comes last, because its abort joins NCCL's launching thread at once.
    (void)ncclGroupStart();
    for_each_communicator([&](NcclCommunicator& c) {
        if (&c != launching) c.abort();
    });
    if (launching != nullptr) launching->abort();
    (void)ncclGroupEnd();  // blocks even for non-blocking communicators; all are gone after it
}

void NcclTransport::abort(const std::string& reason) noexcept {
    control_.transport().abort(reason);
    cancel();
}

/// Calls `work` for every communicator, children first.
void NcclTransport::for_each_communicator(const std::function<void(NcclCommunicator&)>& work) {
    for (const Team& team : teams_) {
        if (team.communicator) work(*team.communicator);
    }
    for (GroupCommunicator& group : groups_) {
        if (group.communicator) work(*group.communicator);
    }
    for (const auto& one : {&backward_, &forward_, &everyone_}) {
        if (*one) work(**one);
    }
}

void NcclTransport::check_health() {
    control_.transport().check_health();
    if (dead_) throw CommunicationError("rank " + std::to_string(rank()) + ": NCCL was aborted");
    for_each_communicator([](NcclCommunicator& c) { (void)c.ready(); });
}

void NcclTransport::wait_until(const std::string& what, const std::function<bool()>& done) {
    const IdleWait::Verdict verdict = poll_until(control_.wait_options(), [&] {
        if (done()) return true;
        control_.transport().check_health();
        return false;
    });
    if (verdict == IdleWait::Verdict::go_on) return;
    throw CommunicationError(
        "rank " + std::to_string(rank()) + ": " + what +
        (verdict == IdleWait::Verdict::interrupted
             ? ": told to end while it waited for the other ranks"
             : ": the other ranks did not answer for " +
                   std::to_string(static_cast<int>(control_.wait_options().timeout_seconds)) +
                   " s; ncclras shows where each rank is"));
}

void NcclTransport::wait_for_streams(const std::string& what) {
    for (const cudaStream_t stream : {streams_.forward, streams_.backward, streams_.collective}) {
        wait_for_stream(stream, what);
    }
}

void NcclTransport::wait_for_stream(cudaStream_t stream, const std::string& what) {
    wait_until(what, [&] {
        check_health();
        return kernels::cuda::has_ended(cudaStreamQuery(stream), "cudaStreamQuery");
    });
}

// --- communicators and connections ---------------------------------------------------------------

std::unique_ptr<NcclCommunicator> NcclTransport::split(bool member,
                                                       const CommunicatorOptions& options) {
    return split({.color = member ? 0 : NCCL_SPLIT_NOCOLOR}, options);
}

std::unique_ptr<NcclCommunicator> NcclTransport::split(const NcclCommunicator::Part& place,
                                                       const CommunicatorOptions& options) {
    auto part = std::make_unique<NcclCommunicator>(*everyone_, place, options);
    try {
        wait_until("ncclCommSplit", [&] { return everyone_->ready(); });
        if (place.color == NCCL_SPLIT_NOCOLOR) return nullptr;
        wait_until("ncclCommSplit", [&] { return part->ready(); });
    } catch (const CommunicationError&) {
        cancel();  // ends the split first, which would still write to `part`
        throw;
    }
    return part;
}

void NcclTransport::prepare(const std::vector<Route>& routes) {
    wait_for_streams("prepare");
    for (const auto& [what, lane, ranks, root] : routes) {
        const bool known = std::any_of(groups_.begin(), groups_.end(),
                                       [&, &r = ranks](auto& g) { return g.ranks == r; });
        if (is_message(what) || known || ranks.size() == static_cast<size_t>(size())) continue;
        const bool member = member_of(ranks, rank()) < static_cast<int>(ranks.size());
        groups_.push_back({ranks, split(member, {.name = name_of_group(ranks),
                                                 .max_ctas = options_.collective_ctas})});
    }
    for (const Route& route : routes) {
        if (connected_.insert(route).second) connect(route);
    }
    wait_for_streams("the first message over every connection");
}

/// Connects a route by sending one byte per member.
void NcclTransport::connect(const Route& route) {
    const auto& [what, lane, ranks, root] = route;
    const Channel channel = channel_of(lane);
    const int self = member_of(ranks, rank());
    if (self == static_cast<int>(ranks.size())) return;
    std::vector<int64_t> begin(ranks.size() + 1);
    for (size_t i = 0; i < begin.size(); ++i) begin[i] = static_cast<int64_t>(i);
    // For this channel only, because channels run on different streams.
    std::byte* const scratch =
        scratch_.get() + static_cast<size_t>(channel) % kStreamChannels * scratch_bytes();
    const std::span<std::byte> one(scratch, 1);
    const std::span<std::byte> mine(scratch, ranks.size());
    const std::span<std::byte> theirs(scratch + size(), ranks.size());
    Transfer t{.what = what,
               .channel = channel,
               .ranks = ranks,
               .root = root,
               .send = one,
               .receive = theirs,
               .block_begin = begin};
    if (what == Do::send) {
        if (self == 1) t.what = Do::receive;
        t.receive = theirs.first(1);
    } else if (what == Do::broadcast) {
        t.receive = one;
    } else if (what == Do::all_to_all) {
        t.send = mine;
    } else if (what == Do::reduce) {
        t.type = DType::fp32;
        t.send = std::span(scratch, sizeof(float));
        t.receive = std::span(scratch + sizeof(float), sizeof(float));
    }
    const Ticket ticket = start(t);
    wait_until("the first " + std::string(to_string(what)) + " of " + name_of_group(ranks),
               [&] { return test(ticket); });
}

NcclCommunicator& NcclTransport::communicator_of(Channel channel, std::span<const int> ranks,
                                                 bool message) {
    if (message && channel == Channel::forward) return *forward_;
    if (message && channel == Channel::backward) return *backward_;
    if (message || ranks.size() == static_cast<size_t>(size())) return *everyone_;
    for (const GroupCommunicator& group : groups_) {
        if (std::equal(ranks.begin(), ranks.end(), group.ranks.begin(), group.ranks.end())) {
            return *group.communicator;
        }
    }
    throw CommunicationError("rank " + std::to_string(rank()) + ": no communicator for " +
                             name_of_group(ranks) + "; load the program before it runs");
}

// --- transfers -----------------------------------------------------------------------------------

Ticket NcclTransport::start(const Transfer& transfer) {
    if (dead_) throw CommunicationError("rank " + std::to_string(rank()) + ": NCCL was aborted");
    pump();
    if (queue_.empty() && in_progress_ == nullptr) {
        launch(transfer);
        if (in_progress_ == nullptr) end_launch();
    } else {
        queue_.push_back({transfer,
                          {transfer.ranks.begin(), transfer.ranks.end()},
                          {transfer.block_begin.begin(), transfer.block_begin.end()},
                          {transfer.block_end.begin(), transfer.block_end.end()}});
    }
    return started_++;
}

/// Called when NCCL has enqueued the launch in progress.
void NcclTransport::end_launch() {
    in_progress_ = nullptr;
    ++launched_;
    const cudaEvent_t done = std::exchange(step_done_, nullptr);
    if (done == nullptr) return;
    kernels::cuda::check(cudaEventRecord(done, step_stream_), "cudaEventRecord");
}

bool NcclTransport::test(Ticket ticket) {
    pump();
    // Tickets count up and may wrap around.
    if (static_cast<int32_t>(launched_ - ticket) > 0) return true;
    control_.transport().check_health();
    return false;
}

void NcclTransport::pump() {
    while (true) {
        if (in_progress_ != nullptr) {
            if (!in_progress_->ready()) return;
            end_launch();
        }
        if (queue_.empty()) return;
        Queued next = std::move(queue_.front());
        queue_.pop_front();
        if (next.team >= 0) {
            launch_step(next.team, next.step);
        } else {
            next.transfer.ranks = next.ranks;
            next.transfer.block_begin = next.block_begin;
            next.transfer.block_end = next.block_end;
            launch(next.transfer);
        }
        if (in_progress_ == nullptr) end_launch();
    }
}

/// Empty messages and blocks are skipped on both ends, because the program gives both the same
/// size.
void NcclTransport::launch(const Transfer& t) {
    const cudaStream_t stream = streams_.of(t.channel);
    if (t.ranks.size() == 1) {  // a group of one: only copies its block
        if (t.what != Do::broadcast) copy(t.send, t.receive, stream);
        return;
    }
    if (traits(t.what).blocks != Blocks::none) {
        launch_blocks(t, communicator_of(t.channel, t.ranks, false));
        return;
    }
    if (t.what == Do::receive ? t.receive.empty() : t.send.empty()) return;
    NcclCommunicator& communicator = communicator_of(t.channel, t.ranks, is_message(t.what));
    ncclComm_t comm = communicator.get();
    switch (t.what) {
        case Do::send:
            nccl::check(ncclSend(t.send.data(), t.send.size(), ncclUint8, t.ranks[1], comm, stream),
                        "ncclSend", rank(), comm);
            break;
        case Do::receive:
            nccl::check(
                ncclRecv(t.receive.data(), t.receive.size(), ncclUint8, t.ranks[0], comm, stream),
                "ncclRecv", rank(), comm);
            break;
        case Do::broadcast:
            nccl::check(ncclBroadcast(t.send.data(), t.receive.data(), t.send.size(), ncclUint8,
                                      member_of(t.ranks, t.root), comm, stream),
                        "ncclBroadcast", rank(), comm);
            break;
        case Do::all_gather:
            nccl::check(ncclAllGather(t.send.data(), t.receive.data(), t.send.size(), ncclUint8,
                                      comm, stream),
                        "ncclAllGather", rank(), comm);
            break;
        case Do::reduce:
            nccl::check(ncclReduce(t.send.data(), t.receive.data(),
                                   t.send.size() / static_cast<size_t>(size_of(t.type)),
                                   t.type == DType::bf16 ? ncclBfloat16 : ncclFloat32, ncclSum,
                                   member_of(t.ranks, t.root), comm, stream),
                        "ncclReduce", rank(), comm);
            break;
        case Do::all_to_all:
        case Do::gather:
        case Do::all_gather_v:
        case Do::pass:
        case Do::combine_softmax:
        case Do::ordered_sum:
            return;
    }
    in_progress_ = &communicator;
}

/// Sends the blocks of all pairs in one group, in which they progress independently.
void NcclTransport::launch_blocks(const Transfer& t, NcclCommunicator& communicator) {
    const cudaStream_t stream = streams_.of(t.channel);
    ncclComm_t comm = communicator.get();
    const auto self = static_cast<size_t>(member_of(t.ranks, rank()));
    bool any = false;
    std::unique_ptr<GroupCalls> group;
    const auto open = [&] {
        if (!group) group = std::make_unique<GroupCalls>(rank());
        any = true;
    };
    const auto send = [&](std::span<const std::byte> bytes, size_t to) {
        if (bytes.empty()) return;
        open();
        nccl::check(
            ncclSend(bytes.data(), bytes.size(), ncclUint8, static_cast<int>(to), comm, stream),
            "ncclSend", rank(), comm);
    };
    const auto receive = [&](std::span<std::byte> bytes, size_t from) {
        if (bytes.empty()) return;
        open();
        nccl::check(
            ncclRecv(bytes.data(), bytes.size(), ncclUint8, static_cast<int>(from), comm, stream),
            "ncclRecv", rank(), comm);
    };
    if (t.what == Do::all_to_all) {
        const size_t mine = t.block(t.send, self).size();
        for (size_t i = 0; i < t.ranks.size(); ++i) {
            const auto theirs = t.block(t.send, i);
            const auto part = t.receive.subspan(i * mine, mine);
            if (i == self) {
                if (!t.own_stays) copy(theirs, part, stream);
            } else {
                send(theirs, i);
                receive(part, i);
            }
        }
    } else if (t.what == Do::gather && rank() != t.root) {
        send(t.send, static_cast<size_t>(member_of(t.ranks, t.root)));
    } else {
        for (size_t i = 0; i < t.ranks.size(); ++i) {
            const auto part = t.block(t.receive, i);
            if (i == self) {
                copy(t.send, part, stream);
            } else {
                if (t.what == Do::all_gather_v) send(t.send, i);
                receive(part, i);
            }
        }
    }
    if (!any) return;
    group->end();
    in_progress_ = &communicator;
}

std::unique_ptr<Transport> make_transport(Communicator& control, const TransportStreams& streams,
                                          const Options& options) {
    return std::make_unique<NcclTransport>(control, streams, options);
}

}  // namespace vocabpipe::nccl

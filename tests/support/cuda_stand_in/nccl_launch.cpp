// SPDX-License-Identifier: Apache-2.0
// What streams do: a launch starts when all its streams have reached it and it is its turn, waits
// until every end has met its other ends (rendezvous), and then lets its streams go on.
#include "tests/support/cuda_stand_in/multiprocessors.hpp"
#include "tests/support/cuda_stand_in/nccl_elements.hpp"
#include "tests/support/cuda_stand_in/nccl_state.hpp"
#include "tests/support/cuda_stand_in/stream_queue.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace cuda_stand_in::nccl {

namespace {

using Bytes = std::vector<std::byte>;

void copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

/// The reduction of all ranks' elements [first, first + count), as a ring does it: it begins behind
/// the rank that gets the result and rounds at every hop. So a sum in rank order differs from it.
Bytes reduced(const Meeting& meeting, size_t first, size_t count, size_t to) {
    const size_t size = meeting.slots.size();
    const Call& any = meeting.slots.front().call;
    const size_t width = size_of(any.type);
    const auto part = [&](size_t rank) {
        return static_cast<const std::byte*>(meeting.slots[rank].call.send) + first * width;
    };
    Bytes sum(count * width);
    copy(sum.data(), part((to + 1) % size), sum.size());
    for (size_t hop = 2; hop <= size; ++hop) {
        accumulate(sum.data(), part((to + hop) % size), count, any.type, any.op);
    }
    if (any.op == ncclAvg) divide(sum.data(), count, any.type, static_cast<int>(size));
    return sum;
}

void move_bytes(const Meeting& meeting) {
    const std::vector<Meeting::Slot>& slots = meeting.slots;
    const Call& any = slots.front().call;
    const size_t bytes = any.count * size_of(any.type);
    const auto root = static_cast<size_t>(any.other);
    if (meeting.message) {
        copy(slots[1].call.receive, slots[0].call.send, bytes);
        return;
    }
    switch (any.kind) {
        case Kind::broadcast:
            for (const Meeting::Slot& slot : slots) {
                copy(slot.call.receive, slots[root].call.send, bytes);
            }
            break;
        case Kind::all_gather: {
            Bytes all(slots.size() * bytes);
            for (size_t i = 0; i < slots.size(); ++i) {
                copy(all.data() + i * bytes, slots[i].call.send, bytes);
            }
            for (const Meeting::Slot& slot : slots) {
                copy(slot.call.receive, all.data(), all.size());
            }
            break;
        }
        case Kind::reduce:
            copy(slots[root].call.receive, reduced(meeting, 0, any.count, root).data(), bytes);
            break;
        case Kind::all_reduce: {
            const Bytes sum = reduced(meeting, 0, any.count, 0);
            for (const Meeting::Slot& slot : slots) copy(slot.call.receive, sum.data(), bytes);
            break;
        }
        case Kind::reduce_scatter: {
            std::vector<Bytes> sums;  // all of them first: a block may lie in its own input
            for (size_t i = 0; i < slots.size(); ++i) {
                sums.push_back(reduced(meeting, i * any.count, any.count, i));
            }
            for (size_t i = 0; i < slots.size(); ++i) {
                copy(slots[i].call.receive, sums[i].data(), bytes);
            }
            break;
        }
        case Kind::send:
        case Kind::receive:
            break;
    }
}

/// NCCL_LAUNCH_ORDER_IMPLICIT: a launch does not overtake an earlier one of its device, whatever
/// the streams and communicators. Without it, several communicators start as their streams please.
bool launch_order_is_implicit() {
    const char* value = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    return value != nullptr && std::string_view(value) == "1";
}

bool over(const Launch& launch) {
    return launch.done || launch.comm->gone() || launch.comm->clique->broken;
}

/// Launches of one communicator run one after the other, also on different streams.
bool is_its_turn(const Launch& launch) {
    if (launch.comm->outstanding.front().get() != &launch) return false;
    if (!launch_order_is_implicit()) return true;
    auto& unstarted = library().devices[launch.device].unstarted;
    while (!unstarted.empty() && unstarted.front()->started) unstarted.pop_front();
    return unstarted.empty() || unstarted.front().get() == &launch;
}

/// All ends have met, or it is over for this launch and nobody touches its memory any more.
bool has_ended(const Launch& launch) {
    return std::all_of(launch.ends.begin(), launch.ends.end(), [&](const auto& end) {
        return end.first->moved || (over(launch) && !end.first->moving);
    });
}

/// Waits for its turn and arrives at all meetings; returns those at which it is the last.
std::vector<std::shared_ptr<Meeting>> arrive(Launch& launch, const std::stop_token& stop) {
    std::vector<std::shared_ptr<Meeting>> complete;
    Lock guard;
    library().changed.wait(guard.lock, stop, [&] { return over(launch) || is_its_turn(launch); });
    launch.started = true;
    library().changed.notify_all();
    if (over(launch) || stop.stop_requested()) return complete;
    for (auto& [meeting, own] : launch.ends) {
        meeting->slots[own].arrived = true;
        if (!meeting->all_arrived()) continue;
        meeting->moving = true;
        complete.push_back(meeting);
    }
    return complete;
}

/// The last of a launch's streams does the work of all.
void carry_out(const std::shared_ptr<Launch>& launch, const std::stop_token& stop) {
    for (auto& [meeting, own] : launch->ends) meeting->order.fetch_add(1);
    const std::vector<std::shared_ptr<Meeting>> complete = arrive(*launch, stop);
    const HeldMultiprocessors held(launch->device, launch->comm->max_ctas);
    for (const std::shared_ptr<Meeting>& meeting : complete) {
        (void)meeting->order.load();
        move_bytes(*meeting);
        meeting->order.fetch_add(1);
    }
    {
        Lock guard;
        for (const std::shared_ptr<Meeting>& meeting : complete) meeting->moved = true;
        library().changed.notify_all();
        library().changed.wait(guard.lock, stop, [&] { return has_ended(*launch); });
        for (auto& [meeting, own] : launch->ends) {
            if (!meeting->moved) meeting->slots[own].arrived = false;  // its memory may go now
        }
        launch->done = true;
        std::erase(launch->comm->outstanding, launch);
        library().changed.notify_all();
    }
}

void run(const std::shared_ptr<Launch>& launch, const std::stop_token& stop) {
    bool last = false;
    {
        Lock guard;
        last = ++launch->streams_reached == launch->streams.size();
    }
    if (last) carry_out(launch, stop);
    {
        Lock guard;
        library().changed.wait(guard.lock, stop, [&] { return over(*launch); });
    }
    for (auto& [meeting, own] : launch->ends) (void)meeting->order.load();
    {
        Lock guard;
        --launch->comm->enqueued;
        library().changed.notify_all();
    }
}

}  // namespace

Library& library() {
    static auto* const everything = new Library;  // communicators and meetings hold each other
    return *everything;
}

void queue(Launches launches) {
    for (const std::shared_ptr<Launch>& launch : launches) {
        {
            const Lock guard;
            launch->comm->enqueued += static_cast<int>(launch->streams.size());
            launch->queued = true;
        }
        for (const cudaStream_t stream : launch->streams) {
            enqueue(stream, [launch = launch, stream]() mutable {
                run(launch, stop_token_of(stream));
                const Unseen unseen;  // like the other references to it: whoever is last frees it
                launch.reset();
            });
        }
    }
    const Unseen unseen;
    launches.clear();
}

}  // namespace cuda_stand_in::nccl

// SPDX-License-Identifier: Apache-2.0
// ncclCommAbort: the call tells the communicator's kernels to end and then waits until all that are
// enqueued have run; a group waits once, after all its calls have told theirs.
#include "tests/support/cuda_stand_in/nccl_rules.hpp"
#include "tests/support/cuda_stand_in/nccl_state.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

namespace cuda_stand_in::nccl {

namespace {

std::atomic<double>& patience() {
    static std::atomic<double> seconds{20};
    return seconds;
}

bool drained(const std::vector<ncclComm*>& comms) {
    return std::all_of(comms.begin(), comms.end(),
                       [](const ncclComm* comm) { return comm->enqueued == 0; });
}

std::string operation_of(const Launch& launch) {
    if (launch.ends.empty()) return "a launch";
    const auto& [meeting, own] = launch.ends.front();
    return text_of(meeting->slots[own].call);
}

/// Kernels of the device that run and whose communicators live.
std::vector<std::shared_ptr<Launch>> running_beside(const ncclComm& aborted) {
    std::vector<std::shared_ptr<Launch>> running;
    for (const auto& comm : library().comms) {
        if (comm->device != aborted.device || comm->gone()) continue;
        for (const std::shared_ptr<Launch>& launch : comm->outstanding) {
            if (launch->started && !launch->done) running.push_back(launch);
        }
    }
    return running;
}

/// Names what an abort waits for, and ends it.
void report_deadlock(const ncclComm& comm) {
    std::string text =
        "all communicators of a device must be aborted in one group: the abort of rank " +
        std::to_string(comm.rank) + " of '" + comm.clique->name + "' waits for " +
        (comm.outstanding.empty() ? "a launch" : operation_of(*comm.outstanding.front())) +
        ", which is enqueued";
    std::vector<std::shared_ptr<Clique>> in_the_way;
    for (const std::shared_ptr<Launch>& launch : running_beside(comm)) {
        text += "; " + operation_of(*launch) + " runs and was not told to end";
        in_the_way.push_back(launch->comm->clique);
    }
    break_rule(text);
    for (const std::shared_ptr<Clique>& clique : in_the_way) give_up(*clique);
}

}  // namespace

AbortPatience::AbortPatience(double seconds) : before_(patience().exchange(seconds)) {}
AbortPatience::~AbortPatience() {
    patience() = before_;
}

void tell_to_end(ncclComm& comm) {
    comm.state = ncclComm::State::aborted;
    comm.job = nullptr;
    comm.clique->aborted = true;
    forget_in_model(*comm.clique);
    std::erase_if(comm.outstanding, [](const std::shared_ptr<Launch>& launch) {
        if (launch->queued) return false;
        launch->started = launch->done = true;  // NCCL gives up what it has not launched yet
        return true;
    });
    library().changed.notify_all();
}

void wait_until_drained(Lock& guard, const std::vector<ncclComm*>& aborted) {
    const auto limit = std::chrono::duration<double>(patience().load());
    const auto done = [&] { return drained(aborted); };
    if (!library().changed.wait_for(guard.lock, limit, done)) {
        report_deadlock(**std::find_if(aborted.begin(), aborted.end(),
                                       [](const ncclComm* comm) { return comm->enqueued > 0; }));
        library().changed.wait(guard.lock, done);
    }
    for (ncclComm* comm : aborted) comm->outstanding.clear();
}

}  // namespace cuda_stand_in::nccl

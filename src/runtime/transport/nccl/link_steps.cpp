// SPDX-License-Identifier: Apache-2.0
// Steps of tile links: launched like all transfers, in the order of the start calls, on a
// communicator and a stream of their own.
#include "kernels/cuda/check.hpp"
#include "src/runtime/transport/nccl/transport.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>

namespace vocabpipe::nccl {

namespace {

std::string name_of_team(const LinkTeam& team) {
    std::string name = std::string("vocabpipe ") + vocabpipe::name_of(team.channel);
    for (const int rank : team.ranks) name += " " + std::to_string(rank);
    return name;
}

}  // namespace

int NcclTransport::join(const LinkTeam& team) {
    wait_for_streams("a tile link");
    NcclCommunicator::Part place{.color = NCCL_SPLIT_NOCOLOR};
    if (!team.ranks.empty()) {  // teams have no rank in common, so the lowest ranks differ
        place = {.color = *std::min_element(team.ranks.begin(), team.ranks.end()),
                 .key = member_of(team.ranks, rank())};
    }
    teams_.push_back(
        {team, split(place, {.name = name_of_team(team), .max_ctas = options_.message_ctas})});
    const int number = static_cast<int>(teams_.size()) - 1;
    connect_team(number);
    return number;
}

/// Sends one byte in both directions of every pair, because NCCL connects two ranks at their first
/// message, which takes long.
void NcclTransport::connect_team(int number) {
    const Team& team = teams_[static_cast<size_t>(number)];
    const int members = static_cast<int>(team.team.ranks.size());
    const int self = member_of(team.team.ranks, rank());
    for (int o = 1; o < members; ++o) {
        const LinkStep step{.to = (self + o) % members,
                            .from = (self + members - o) % members,
                            .send = std::span(scratch_.get(), 1),
                            .receive = std::span(scratch_.get() + 1, 1)};
        const Ticket ticket = start_step(number, step);
        wait_until("the first message of " + name_of_team(team.team),
                   [&] { return test_step(ticket); });
    }
    if (members > 0) {
        wait_for_stream(team.team.stream, "the first messages of " + name_of_team(team.team));
    }
}

Ticket NcclTransport::start_step(int team, const LinkStep& step) {
    if (dead_) throw CommunicationError("rank " + std::to_string(rank()) + ": NCCL was aborted");
    pump();
    if (queue_.empty() && in_progress_ == nullptr) {
        launch_step(team, step);
        if (in_progress_ == nullptr) end_launch();
    } else {
        queue_.push_back({.team = team, .step = step});
    }
    return started_++;
}

/// Send and receive are in one group, so that they progress independently. Else a send would wait
/// for its receiver, which would first have to end its own send.
void NcclTransport::launch_step(int number, const LinkStep& step) {
    const Team& team = teams_[static_cast<size_t>(number)];
    const cudaStream_t stream = team.team.stream;
    step_done_ = step.done;
    step_stream_ = stream;
    if (step.ready != nullptr) {
        kernels::cuda::check(cudaStreamWaitEvent(stream, step.ready, 0), "cudaStreamWaitEvent");
    }
    if (step.send.empty() && step.receive.empty()) return;
    ncclComm_t comm = team.communicator->get();
    GroupCalls group(rank());
    if (!step.send.empty()) {
        nccl::check(ncclSend(step.send.data(), step.send.size(), ncclUint8, step.to, comm, stream),
                    "ncclSend", rank(), comm);
    }
    if (!step.receive.empty()) {
        nccl::check(
            ncclRecv(step.receive.data(), step.receive.size(), ncclUint8, step.from, comm, stream),
            "ncclRecv", rank(), comm);
    }
    group.end();
    in_progress_ = team.communicator.get();
}

}  // namespace vocabpipe::nccl

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"

#include <cuda_runtime.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// Ranks that exchange tensors through a tile link on GPUs.
struct LinkTeam {
    std::vector<int> ranks;  ///< members, in ranks of the world; this one's are among them
    Channel channel = Channel::tensor;
    cudaStream_t stream = nullptr;  ///< the link's own; steps run there one after the other
};

/// One send and one receive of a link that progress together. Events and memory stay valid until
/// test_step() was true.
struct LinkStep {
    int to = 0;                       ///< member
    int from = 0;                     ///< member; its own step of the same number sends to this one
    std::span<const std::byte> send;  ///< empty: nothing; the receiver knows
    std::span<std::byte> receive;     ///< of as many bytes as are sent
    cudaEvent_t ready = nullptr;      ///< recorded: `send` is made; null where it is empty
    /// Recorded on the link's stream behind this step, before any later one.
    cudaEvent_t done = nullptr;
};

/// What a transport between GPUs does for tile links, beside its transfers.
class LinkTransport {
public:
    virtual ~LinkTransport() = default;
    /// Makes what a team needs; nothing may be under way. Collective over the world: each rank
    /// gives its own team, teams have no rank in common, and a rank without one gives no ranks.
    /// Returns the team's number.
    [[nodiscard]] virtual int join(const LinkTeam& team) = 0;
    /// Begins a step; never blocks. All members start theirs in one order, which for NCCL includes
    /// transfers.
    [[nodiscard]] virtual Ticket start_step(int team, const LinkStep& step) = 0;
    /// True once it is enqueued on the link's stream and `done` is recorded; the ticket is then
    /// gone. To be asked in the order of steps. Waits for no stream. Throws CommunicationError if
    /// the world failed.
    [[nodiscard]] virtual bool test_step(Ticket ticket) = 0;
};

}  // namespace vocabpipe

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
    std::vector<int> ranks;  ///< members, in ranks of the world, with this rank
    Channel channel = Channel::tensor;
    cudaStream_t stream = nullptr;  ///< the link's; steps run there in order
};

/// One send and one receive of a link that progress together. Events and memory stay valid until
/// test_step() has returned true.
struct LinkStep {
    int to = 0;                       ///< member
    int from = 0;                     ///< member whose step of the same number sends to this one
    std::span<const std::byte> send;  ///< empty: nothing, as the receiver expects
    std::span<std::byte> receive;     ///< as many bytes as are sent
    cudaEvent_t ready = nullptr;      ///< recorded when `send` is made; null if it is empty
    /// Recorded on the link's stream after this step, before any later one.
    cudaEvent_t done = nullptr;
};

/// Functions of a transport between GPUs for tile links, besides its transfers.
class LinkTransport {
public:
    virtual ~LinkTransport() = default;
    /// Connects a team; no transfer may be open. Collective over the world: each rank gives its own
    /// team, or no ranks if it has none, and teams have no rank in common. Returns the team's
    /// number.
    [[nodiscard]] virtual int join(const LinkTeam& team) = 0;
    /// Starts a step; never blocks. All members start steps in the same order, which for NCCL
    /// includes transfers.
    [[nodiscard]] virtual Ticket start_step(int team, const LinkStep& step) = 0;
    /// True once the step is enqueued on the link's stream and `done` is recorded; the ticket is
    /// then invalid. Call in the order of steps. Waits for no stream. Throws CommunicationError if
    /// the world failed.
    [[nodiscard]] virtual bool test_step(Ticket ticket) = 0;
};

}  // namespace vocabpipe

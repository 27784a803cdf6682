// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/overlap.hpp"
#include "vocabpipe/tile_link.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <memory>

namespace vocabpipe {

/// What is timed: one row of bench_overlap, one candidate of profile --overlap. A team is the whole
/// world; fp32.
struct OverlapCase {
    OverlapOp op = OverlapOp::all_gather_gemm;  ///< no hop
    int pieces = 1;
    int64_t rows = 1024;     ///< of all members; of experts those that a member has on average
    int64_t inner = 1024;    ///< that a member's products sum over
    int64_t columns = 1024;  ///< of a member's product
    int64_t experts = 4;     ///< of a member; of operations of experts
    int64_t per_token = 2;   ///< experts that a token chooses
    int rounds = 9;          ///< the fastest counts, of the slowest rank each
    double modelled = 0;     ///< the link's time over computing's; 0: the link as it is
};

/// Seconds, the same on every rank.
struct OverlapTiming {
    int64_t bytes = 0;      ///< that the rank receives that receives most
    double compute = 0;     ///< one product of all rows
    double link = 0;        ///< the exchange alone, one piece per member
    double blocking = 0;    ///< exchange, then one product; a reduce-scatter the other way round
    double overlapped = 0;  ///< products and messages by pieces
    int64_t wrong = 0;      ///< elements of all ranks that differ from blocking in a bit

    [[nodiscard]] double hidden() const { return (compute + link - overlapped) / link; }
};

/// A link of all ranks, on devices of one kind; `transport`: what device.open_transport() gives, or
/// the world's. Collective.
[[nodiscard]] std::unique_ptr<TileLink> link_of_all(Communicator& world, Device& device,
                                                    Transport& transport);

/// With products of the device, and the link of link_of_all(). A modelled link is one of hosts, and
/// so is what experts do (timed_experts.hpp). Collective.
[[nodiscard]] OverlapTiming time_overlap(Communicator& world, Device& device, TileLink& link,
                                         const OverlapCase& c);

}  // namespace vocabpipe

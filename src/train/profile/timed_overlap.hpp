// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/overlap.hpp"
#include "vocabpipe/tile_link.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <memory>

namespace vocabpipe {

/// One measurement: a row of bench_overlap, or a candidate of profile --overlap. The team is the
/// whole world; fp32.
struct OverlapCase {
    OverlapOp op = OverlapOp::all_gather_gemm;  ///< not hop
    int pieces = 1;
    int64_t rows = 1024;     ///< of all members; with experts, the mean per member
    int64_t inner = 1024;    ///< length of a member's sums
    int64_t columns = 1024;  ///< of a member's product
    int64_t experts = 4;     ///< per member; for operations of experts
    int64_t per_token = 2;   ///< experts that a token chooses
    double load_std = 0;     ///< of the experts' shares of all choices (timed_experts.hpp)
    int rounds = 9;          ///< the fastest counts, each as long as its slowest rank
    double modelled = 0;     ///< link time over compute time; 0: the link as it is
};

/// Seconds, the same on every rank.
struct OverlapTiming {
    int64_t bytes = 0;      ///< received by the rank that receives most
    double compute = 0;     ///< one product of all rows
    double link = 0;        ///< the exchange without products, one piece per member
    double blocking = 0;    ///< exchange, then one product; reversed for a reduce-scatter
    double overlapped = 0;  ///< products and messages piece by piece
    int64_t wrong = 0;      ///< elements, over all ranks, with other bits than blocking

    [[nodiscard]] double hidden() const { return (compute + link - overlapped) / link; }
};

/// A link over all ranks, on devices of one kind. `transport`: from device.open_transport(), or the
/// world's. Collective.
[[nodiscard]] std::unique_ptr<TileLink> link_of_all(Communicator& world, Device& device,
                                                    Transport& transport);

/// Times products of the device with the link of link_of_all(). Modelled links and operations of
/// experts (timed_experts.hpp) need host devices. Collective.
[[nodiscard]] OverlapTiming time_overlap(Communicator& world, Device& device, TileLink& link,
                                         const OverlapCase& c);

}  // namespace vocabpipe

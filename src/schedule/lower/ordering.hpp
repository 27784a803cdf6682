// SPDX-License-Identifier: Apache-2.0
// Second half of lowering, part one: one global order by list scheduling.
#pragma once

#include "src/schedule/lower/dataflow.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe::lowering {

/// A node's place in the global order and its time in the schedule that made the order.
struct Place {
    uint32_t order = 0;
    int64_t start_ns = 0;
    int64_t end_ns = 0;
};

/// List scheduling: starts every node, in order of time, as soon as its predecessors are done and
/// its lanes are free. With CommunicationOrder::lanes, where communications of a lane may overlap,
/// a node along a streamed edge starts with the first rows and keeps its lanes until it has the
/// last. Every dependency and every lane then points forward in `order`, so its projections cannot
/// deadlock. Throws UsageError on a cycle.
[[nodiscard]] std::vector<Place> order_globally(const Dataflow& flow, CommunicationOrder lanes);

}  // namespace vocabpipe::lowering

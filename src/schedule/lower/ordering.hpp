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

/// Starts every node as soon as what it needs is done, in order of time; where lanes take one
/// communication at a time, as soon as its lanes are free as well. Elsewhere rows stream: nodes
/// start with the first ones along streamed edges, and keep their lanes until they have the last.
/// Every dependency then points forward in `order`, and so does every lane, which is why
/// projections of it cannot deadlock. Throws UsageError on a cycle.
[[nodiscard]] std::vector<Place> order_globally(const Dataflow& flow, CommunicationOrder lanes);

}  // namespace vocabpipe::lowering

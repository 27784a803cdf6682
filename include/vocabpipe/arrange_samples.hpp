// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/step_batch.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace vocabpipe {

/// The order of a step's microbatches by their lengths: gets and returns an index for each, 0 for
/// the longest length, as order_microbatches(). A pure function of the multiset.
using OrderLengths = std::function<std::vector<int>(std::vector<int> lengths)>;

/// Samples of nearly one length together, so that they are padded least: sorts the step's samples
/// by length, cuts them into microbatches, each of the length of its longest sample, and orders
/// these with `order`, which is asked once for each multiset and kept. All replicas have the same
/// lengths in the same order, and so the same work. `lengths`: those that samples have, descending.
/// The result may be called from several threads.
///
///     arrange_by_length({2048, 512}, [&](std::vector<int> lengths) {
///         return order_microbatches(plan.schedule, plan.order_costs, std::move(lengths));
///     });
[[nodiscard]] ArrangeSamples arrange_by_length(std::vector<int64_t> lengths, OrderLengths order);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
// Data parallelism within a step: each bucket's gradients are added up by the replica that updates
// them, and its weights go back to all (ZeRO stage 1).
#pragma once

#include "src/schedule/lower/step_graph.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe::lowering {

/// Adds up every bucket of a rank, in the order in which the buckets' gradients are complete: sends
/// the blocks of all replicas to the one that updates them, which adds them in replica order.
/// Returns the nodes after which the sums are complete.
[[nodiscard]] std::vector<uint32_t> add_sums_over_replicas(StepGraph& step, int rank);

/// After `update`, sends the weights that each replica has updated to all replicas.
void gather_weights(StepGraph& step, int rank, uint32_t update);

}  // namespace vocabpipe::lowering

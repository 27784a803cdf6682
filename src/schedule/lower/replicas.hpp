// SPDX-License-Identifier: Apache-2.0
// Data parallelism within a step: each bucket's gradients are added up by the replica that updates
// them, and its weights go back to all (ZeRO stage 1).
#pragma once

#include "src/schedule/lower/step_graph.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe::lowering {

/// Every bucket of a rank, in the order in which its gradients are complete: blocks of all replicas
/// to the one that updates them, added up in replica order. Returns the nodes after which they are.
[[nodiscard]] std::vector<uint32_t> add_sums_over_replicas(StepGraph& step, int rank);

/// What every replica has updated, after `update`, to all of them.
void gather_weights(StepGraph& step, int rank, uint32_t update);

}  // namespace vocabpipe::lowering

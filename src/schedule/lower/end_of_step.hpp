// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/lower/step_graph.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe::lowering {

/// Adds the end of the step, after the last microbatch: gradients of tied weights and of the
/// replicas are added up, every rank reports its norms and loss to all, and updates its weights.
/// Without an optimizer step (StepSizes::report_bytes = 0) only tied gradients are added up here.
/// `sharded_sums`: what add_sharded_stages() has returned. Throws UsageError for tied weights that
/// are sharded differently in the two layers.
void add_end_of_step(StepGraph& step, const std::vector<std::vector<uint32_t>>& sharded_sums);

}  // namespace vocabpipe::lowering

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/candidates.hpp"
#include "src/plan/model_on_device.hpp"

namespace vocabpipe {

/// Mesh x microbatch size x recomputation, as candidates without a schedule. Skips those that the
/// model or the batch rules out. Throws UsageError if no p, t and d of the lists multiply to the
/// number of GPUs.
[[nodiscard]] Candidates list_steps(const PlanOptions& options, const ModelOnDevice& model);

}  // namespace vocabpipe

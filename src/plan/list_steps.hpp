// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/candidates.hpp"

namespace vocabpipe {

/// Mesh x microbatch size x recomputation, as candidates without a schedule. Skipped is what the
/// model or the batch rules out. Throws UsageError where no p, t and d of the lists make up the
/// GPUs.
[[nodiscard]] Candidates list_steps(const PlanOptions& options);

}  // namespace vocabpipe

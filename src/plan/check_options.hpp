// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/plan.hpp"

namespace vocabpipe {

/// Throws UsageError naming the flag of an option that is out of range, or that conflicts with
/// others on every mesh.
void check_options(const PlanOptions& options);

}  // namespace vocabpipe

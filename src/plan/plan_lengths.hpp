// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/plan.hpp"

namespace vocabpipe {

/// How fast a row trains on documents of different lengths.
[[nodiscard]] LengthPlan plan_lengths(const PlanOptions& options, const PlanRow& row);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/model_rank.hpp"

namespace vocabpipe {

/// Rate of flop_costs(), about that of one core; only ratios matter for an order.
inline constexpr double kNominalFlopsPerNs = 200;

/// Pass costs from FLOPs at one nominal rate, for ordering before anything was measured. Identical
/// on every rank by construction.
[[nodiscard]] TableCosts flop_costs(const ModelConfig& config, const ModelPartition& partition,
                                    const Schedule& schedule);

}  // namespace vocabpipe

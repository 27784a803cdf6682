// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/step_costs.hpp"
#include "src/plan/unit_costs.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/plan.hpp"
#include "vocabpipe/trained_parts.hpp"

#include <vector>

namespace vocabpipe {

/// Everything about one candidate except the order of its passes: where stages and vocabulary rows
/// live, the costs of passes and the bytes of buffers and parameters.
struct StepModel {
    ScheduleOptions generate;
    Schedule placement;  ///< no passes: ranks, stages, rank_of_stage, shard maps
    TrainedParts trained;
    StepCosts costs;
    StepSizes sizes;
    /// [pipeline rank] weights, gradients, optimizer, reserve
    std::vector<PlannedMemory> persistent;
};

/// `bucket_parts`: needed to lower the step; bounds and pass times take the ends of a bucket.
[[nodiscard]] StepModel step_model(const PlanOptions& options, const UnitCosts& units,
                                   const Candidate& candidate, bool bucket_parts = true);

}  // namespace vocabpipe

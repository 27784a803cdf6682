// SPDX-License-Identifier: Apache-2.0
// Bounds of memory, added up again from the model of a step.
#include "src/plan/step_bound.hpp"

#include "src/model/parameter_groups.hpp"
#include "src/plan/candidates.hpp"
#include "src/plan/step_model.hpp"
#include "src/plan/unit_costs.hpp"
#include "tests/plan/plan_cases.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace vocabpipe::testing {
namespace {

/// What a rank keeps of one microbatch when its highest stage is about to end its backward, or
/// when it scores.
int64_t kept_bytes(const StepModel& step, const Candidate& candidate, int rank) {
    const bool recomputes = candidate.recompute != Recompute::none;
    int64_t kept = 0, backward = 0;
    for (size_t stage = 0; stage < step.placement.rank_of_stage.size(); ++stage) {
        if (step.placement.rank_of_stage[stage] != rank) continue;
        backward = 0;
        if (static_cast<int>(stage) < step.trained.first_backward) continue;
        const StageBytes& bytes = step.sizes.stages[stage];
        kept += bytes.saved;
        (recomputes ? backward : kept) += bytes.recomputed;
        const int64_t whole = bytes.backward_workspace, half = bytes.input_gradient_workspace;
        backward += generator(candidate.schedule).splits_backward && half < whole ? half : whole;
    }
    int64_t score = 0;
    if (step.placement.output.rows(rank) > 0) {
        const ShardBytes& shard = step.sizes.shards[static_cast<size_t>(rank)];
        score = shard.exp_logits + shard.score_workspace;
    }
    return step.persistent[static_cast<size_t>(rank)].total() + kept + std::max(backward, score);
}

void expect_bytes(PlanOptions options) {
    options.recompute = {Recompute::none, Recompute::selective, Recompute::full};
    const ModelOnDevice on_device(options);
    for (const Candidate& candidate : list_candidates(options).possible) {
        StepModel step = step_model(options, unit_costs(on_device, candidate), candidate, false);
        const auto bound = [&] {
            return bound_step(step, candidate, options.gpu_memory_bytes()).memory_bytes;
        };
        int64_t most = 0;
        for (int r = 0; r < step.placement.ranks; ++r) {
            most = std::max(most, kept_bytes(step, candidate, r));
        }
        EXPECT_EQ(bound(), most) << to_string(candidate);
        // Each rank in turn needs most.
        for (int r = 0; r < step.placement.ranks; ++r) {
            PlannedMemory& memory = step.persistent[static_cast<size_t>(r)];
            memory.weights += int64_t{1} << 50;
            EXPECT_EQ(bound(), kept_bytes(step, candidate, r)) << to_string(candidate) << r;
            memory.weights -= int64_t{1} << 50;
        }
    }
}

TEST(MemoryBound, IsTheSumOfWhatOneMicrobatchNeeds) {
    expect_bytes(small_plan());
}

TEST(MemoryBound, LeavesOutStagesWithoutBackwards) {
    PlanOptions options = small_plan();
    use_parameter_groups(options, {parse_parameter_group("*.w?e.*:freeze"),
                                   parse_parameter_group("*.h.[0125].*:freeze")});
    expect_bytes(options);
}

}  // namespace
}  // namespace vocabpipe::testing

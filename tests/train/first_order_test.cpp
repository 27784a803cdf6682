// SPDX-License-Identifier: Apache-2.0
// What --schedule-costs auto orders passes by before anything is measured.
#include "src/train/plan/training_plan.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace vocabpipe {
namespace {

/// Stages of 3, 3, 1 and 1 layers.
TrainOptions uneven_run() {
    TrainOptions options;
    options.model.num_layers = 8;
    options.model.hidden_size = options.model.ffn_hidden_size = 64;
    options.model.num_attention_heads = 4;
    options.model.seq_length = options.model.max_position_embeddings = 64;
    options.model.vocab_size = 101;
    options.global_batch_size = 8;
    options.threads_per_rank = 1;
    options.schedule = "zb";
    options.layout = "Vttt|ttt|t|tV";
    return options;
}

StepPlan first_step(const TrainOptions& options) {
    const std::vector<RankPlacement> placements(4,
                                                {.host = "here", .cores = 4, .ranks_on_host = 4});
    return TrainingPlan(options, placements).steps().front();
}

TEST(FirstOrder, OfAutoFollowsTheFlopsOfStages) {
    TrainOptions options = uneven_run();
    options.schedule_costs.reset();  // auto
    const StepPlan plan = first_step(options);
    const auto cost = [&](size_t stage, Op op) {
        return static_cast<double>(plan.order_costs.stage.at(stage)[static_cast<size_t>(op)]);
    };
    EXPECT_NEAR(cost(0, Op::F) / cost(2, Op::F), 3, 0.1);
    EXPECT_NEAR(cost(1, Op::W) / cost(3, Op::W), 3, 0.1);
    EXPECT_NEAR(cost(0, Op::B) / cost(0, Op::F), 2, 0.01);
    EXPECT_EQ(plan.order_costs.hop, 0) << "of links nothing is known";
    EXPECT_EQ(plan.order_costs.c0, 0);
}

TEST(FirstOrder, OfAGivenRatioTakesStagesAsAlike) {
    TrainOptions options = uneven_run();
    options.schedule_costs = {2, 3};
    const StepPlan given = first_step(options);
    EXPECT_EQ(given.order_costs.stage.size(), 1U);
    options.schedule_costs.reset();
    EXPECT_NE(given.schedule.passes, first_step(options).schedule.passes);
}

}  // namespace
}  // namespace vocabpipe

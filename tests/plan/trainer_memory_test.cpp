// SPDX-License-Identifier: Apache-2.0
// What stages need with other trainers than this library's.
#include "src/plan/trainer_memory.hpp"

#include "src/model/blocks/model_layers.hpp"
#include "src/plan/kernel_rates.hpp"
#include "src/plan/planned_config.hpp"
#include "tests/plan/plan_cases.hpp"

#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

constexpr int64_t kTokens = 1024;   // one sequence
constexpr int64_t kRow = 1024 * 2;  // bytes of a row of the residual stream
constexpr int64_t kHeads = 16;

/// 100 bytes saved and 4000 recomputed by two layers.
StageBytes with(const PlannedTrainer& trainer, Recompute recompute, int tensor = 2,
                int context = 1) {
    const ModelConfig config = planned_config(small_plan());
    const ModelLayers layers(config, {.tensor = tensor});
    StageBytes stage{.saved = 100, .recomputed = 4000};
    add_trainer_bytes(stage, trainer,
                      {.mesh = {.tensor = tensor, .context = context},
                       .micro_batch_size = 1,
                       .recompute = recompute},
                      config, {&layers[0].block, &layers[1].block});
    return stage;
}

TEST(TrainerMemory, IsThatOfRunsByDefault) {
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        const StageBytes stage = with({}, recompute);
        EXPECT_EQ(stage.saved, 100);
        EXPECT_EQ(stage.recomputed, 4000);
        EXPECT_EQ(stage.forward_workspace, 0);
    }
}

// The inputs of two sublayers and the outputs of two norms, of which a run holds half.
TEST(TrainerMemory, WithoutSequenceParallelismHasWholeRows) {
    const PlannedTrainer trainer{.sequence_parallel = false};
    const int64_t more = 2 * kTokens * kRow / 2;  // of two layers
    EXPECT_EQ(with(trainer, Recompute::none).saved, 100 + 4 * more);
    EXPECT_EQ(with(trainer, Recompute::selective).saved, 100 + 2 * more);
    EXPECT_EQ(with(trainer, Recompute::selective).recomputed, 4000 + 2 * more);
    EXPECT_EQ(with(trainer, Recompute::full).saved, 100);
    EXPECT_EQ(with(trainer, Recompute::full).recomputed, 4000 + 4 * more);
    EXPECT_EQ(with(trainer, Recompute::none, 1).saved, 100);
}

TEST(TrainerMemory, KernelsOf2022SaveScores) {
    const PlannedTrainer trainer{.kernels = KernelYear::y2022};
    const auto scores = static_cast<int64_t>(kTokens / 2 * kHeads * kTokens *
                                             kernel_rates(trainer.kernels).score_bytes_saved);
    EXPECT_EQ(with(trainer, Recompute::none).saved, 100 + 2 * scores);
    // Where they are made again, one layer's scores exist at a time.
    const StageBytes selective = with(trainer, Recompute::selective);
    EXPECT_EQ(selective.saved, 100);
    EXPECT_EQ(selective.backward_workspace, scores);
    EXPECT_EQ(with(trainer, Recompute::full).recomputed, 4000 + 2 * scores);
}

TEST(TrainerMemory, OfContextRanksIsThatOfTheirTokens) {
    const PlannedTrainer rows{.sequence_parallel = false};
    EXPECT_EQ(with(rows, Recompute::none, 2, 4).saved, 100 + kTokens / 4 * 4 * kRow);
    const PlannedTrainer scores{.kernels = KernelYear::y2022};
    const auto saved = [&](int context) {
        return with(scores, Recompute::none, 2, context).saved - 100;
    };
    EXPECT_EQ(saved(4) * 4, saved(1));
    EXPECT_EQ(with({.recompute_layers = 1}, Recompute::full, 2, 4).saved,
              100 + kTokens / 4 * kRow / 2);
}

TEST(TrainerMemory, FullRecomputationOfOneLayerAtATimeKeepsItsInput) {
    const PlannedTrainer trainer{.recompute_layers = 1};
    const StageBytes stage = with(trainer, Recompute::full);
    EXPECT_EQ(stage.saved, 100 + kTokens * kRow / 2);
    EXPECT_EQ(stage.recomputed, 4000 / 2);
    EXPECT_EQ(with({.recompute_layers = 2}, Recompute::full).recomputed, 4000);
    EXPECT_EQ(with(trainer, Recompute::selective).recomputed, 4000);
}

}  // namespace
}  // namespace vocabpipe::testing

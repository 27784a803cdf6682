// SPDX-License-Identifier: Apache-2.0
// What depths of multi-token prediction take in a plan.
#include "src/model/parameter_groups.hpp"
#include "src/plan/step_model.hpp"
#include "src/plan/unit_costs.hpp"
#include "tests/plan/plan_cases.hpp"
#include "tests/train/data/expect_error.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/model_flops.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

PlanOptions predicting(int depths) {
    PlanOptions options = small_plan();
    options.model.config.mtp_num_layers = depths;
    return options;
}

/// Two ranks with five and three of the eight layers.
Candidate on_two_ranks() {
    return {.schedule = "1f1b",
            .vocab_mode = VocabMode::one_barrier,
            .layers_per_stage = {5, 3},
            .mesh = {.pipeline = 2},
            .microbatches = 4};
}

std::vector<std::vector<int>> splits(const PlanOptions& options, VocabMode mode) {
    std::vector<std::vector<int>> layers;
    for (const Candidate& candidate : list_candidates(options).possible) {
        if (candidate.vocab_mode == mode) layers.push_back(candidate.layers_per_stage);
    }
    return layers;
}

TEST(Depths, TakeALayerAProjectionAndThreeNormsEach) {
    PlanOptions options = predicting(2);
    options.device = instant_device();
    options.device.dense_efficiency.value = 1;  // 1000 FLOPs per ns
    const Candidate candidate = on_two_ranks();
    const UnitCosts products = unit_costs(ModelOnDevice(options), candidate);
    const LayerTimes& layer = products.layers.back();
    const double projection = 1024.0 * 2 * (2 * 1024) * 1024 / 1000;
    expect_near(products.mtp_layers.forward, 2 * (layer.forward + projection));
    expect_near(products.mtp_layers.input_gradient, 2 * (layer.input_gradient + projection));
    expect_near(products.mtp_layers.weight_gradient, 2 * (layer.weight_gradient + projection));
    expect_near(products.mtp_layers.backward, 2 * (layer.backward + 2 * projection));

    options.device = instant_device();
    options.device.elementwise_efficiency.value = 1;  // 4 bytes per ns
    const UnitCosts moves = unit_costs(ModelOnDevice(options), candidate);
    const double norms = 3 * 1024 * 1024 * 2.0 / 4;  // of an element each
    expect_near(moves.mtp_layers.forward, 2 * (moves.layers.back().forward + 2 * norms));
    expect_near(moves.mtp_layers.backward, 2 * (moves.layers.back().backward + 3 * norms));
}

TEST(Depths, GiveTheOutputLayerARowPerTokenMoreAndTheEmbeddingASecondGradient) {
    const UnitCosts one = unit_costs(ModelOnDevice(predicting(0)), on_two_ranks());
    const UnitCosts three = unit_costs(ModelOnDevice(predicting(2)), on_two_ranks());
    expect_near(three.logits.per_row, 3 * one.logits.per_row);
    expect_near(three.softmax_per_row, 3 * one.softmax_per_row);
    expect_near(three.whole_softmax_per_row, 3 * one.whole_softmax_per_row);
    expect_near(three.output_gradient.fixed - one.logits.fixed,
                3 * (one.output_gradient.fixed - one.logits.fixed));
    EXPECT_GT(three.output_weight_gradient.per_row, 2 * one.output_weight_gradient.per_row);
    expect_near(three.embedding_gradient, 2 * one.embedding_gradient);
    expect_near(three.embedding, one.embedding);
    EXPECT_EQ(one.mtp_layers.forward, 0);
}

TEST(Depths, AreWorkMemoryAndWeightsOfTheirStageAlone) {
    UnitCosts units;
    units.layers.assign(8, {.forward = 100, .backward = 200});
    units.mtp_layers = {.forward = 7, .backward = 17};
    PlanOptions options = predicting(1);
    const auto step = [&] { return step_model(options, units, on_two_ranks()); };
    const auto forward = [](const StepModel& of) {
        return std::vector{of.costs.pass_ns(0, {Op::F, 0, 0}), of.costs.pass_ns(1, {Op::F, 1, 0})};
    };
    const StepModel last = step();
    EXPECT_THAT(forward(last), ElementsAre(500, 307));
    options.mtp_stage = 0;
    EXPECT_THAT(forward(step()), ElementsAre(507, 300));
    options.mtp_stage = -1;
    options.model.config.mtp_num_layers = 0;
    units.mtp_layers = {};
    const StepModel none = step();
    EXPECT_EQ(last.sizes.stages[0].saved, none.sizes.stages[0].saved);
    // A layer of 34 h bytes per token and more, and the depth's own four tensors.
    EXPECT_GT(last.sizes.stages[1].saved,
              none.sizes.stages[1].saved + 4 * 1024 * 1024 * 2 + 16 * 1024 * 1024 * 2);
    EXPECT_EQ(last.sizes.shards[1].exp_logits, 2 * none.sizes.shards[1].exp_logits);
    EXPECT_EQ(last.persistent[0].weights, none.persistent[0].weights);
    // A layer of GPT-2, the projection of 2 h columns, and three norms with biases; bf16.
    constexpr int64_t h = 1024;
    EXPECT_EQ(last.persistent[1].weights - none.persistent[1].weights,
              2 * (12 * h * h + 13 * h + 2 * h * h + 3 * 2 * h));
}

TEST(Depths, MoveLayersAwayFromTheLastStageInEveryMode) {
    PlanOptions options = predicting(1);
    options.schedules = {"1f1b"};
    for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
        EXPECT_THAT(splits(options, mode), Contains(ElementsAre(3, 2, 2, 1))) << to_string(mode);
        EXPECT_THAT(splits(options, mode), Contains(ElementsAre(2, 2, 3, 1))) << to_string(mode);
    }
    options.model.config.mtp_num_layers = 0;
    EXPECT_THAT(splits(options, VocabMode::none), ElementsAre(ElementsAre(2, 2, 2, 2)));
}

TEST(Depths, AreInTheCommandOfARow) {
    PlanOptions options = predicting(1);
    Candidate candidate = on_two_ranks();
    candidate.mesh.pipeline = 2;
    const auto command = [&] { return train_command(options, candidate); };
    EXPECT_THAT(command(), HasSubstr(" --mtp-num-layers 1 "));
    options.model.file_mtp_layers = 1;
    EXPECT_THAT(command(), Not(HasSubstr("--mtp-num-layers")));
    // 1.2 layers by FLOPs: train_gpt's own split.
    EXPECT_THAT(command(), Not(HasSubstr("--pipeline-model-parallel-layout")));
    candidate.layers_per_stage = {4, 4};
    EXPECT_THAT(command(), HasSubstr(" --pipeline-model-parallel-layout 'Vt*4|t*4mV' "));
    candidate.layers_per_stage = {8, 0};
    options.mtp_stage = 0;
    EXPECT_THAT(command(), HasSubstr(" --pipeline-model-parallel-layout 'Vt*8m|V' "));
}

TEST(Depths, AreRefusedWithFrozenTensors) {
    PlanOptions options = predicting(1);
    use_parameter_groups(options, {parse_parameter_group("*:freeze")});
    EXPECT_EQ(message_of<UsageError>([&] { (void)make_plan(options); }),
              "--param-group: plans with frozen parameters count no depths of multi-token "
              "prediction, and small has 1; use --mtp-num-layers 0");
}

}  // namespace
}  // namespace vocabpipe::testing

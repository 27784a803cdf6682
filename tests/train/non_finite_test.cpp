// SPDX-License-Identifier: Apache-2.0
// NaN and infinity in a weight, or only in what a step makes of good weights.
#include "src/step/optimizer/non_finite.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "src/model/parameters.hpp"
#include "src/step/random_batch.hpp"
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/trained_rank.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(NonFinite, IsDescribedWithTheLikelyCauseFirst) {
    ModelConfig config;
    config.num_layers = 2;
    config.hidden_size = 8;
    config.ffn_hidden_size = 8;
    config.num_attention_heads = 1;
    config.vocab_size = 8;
    const auto tensors = std::to_string(logical_parameters(config).size());
    NonFinite found;
    found.gradients = {{.id = 0, .rank = 0}, {.id = 5, .rank = 1}};
    EXPECT_EQ(describe_non_finite(found, config, 7, 2.5, NAN),
              "step 7: loss 2.500000, gradient norm nan; gradients of 2 of " + tensors +
                  " tensors are not finite, first in the backward " +
                  logical_parameters(config)[5].name + " on rank 1");
    for (int i = 0; i < 10; ++i) found.losses.push_back({.id = i});
    EXPECT_THAT(
        describe_non_finite(found, config, 7, NAN, NAN),
        HasSubstr("nan; the losses of microbatches 0, 1, 2, 3, 4, 5, 6, 7 and 2 others are not "
                  "finite; gradients of"));
    found.weights = {{.id = 2, .rank = 3}};
    EXPECT_THAT(describe_non_finite(found, config, 7, NAN, NAN),
                HasSubstr("nan; weights of 1 of " + tensors + " tensors are not finite, first " +
                          logical_parameters(config)[2].name + " on rank 3; the loss"));
}

// Microbatch i of replica r is the (2 i + r)-th of a step of two replicas.
TEST(NonFinite, IsTheLossOfAMicrobatchOfTheWholeStepOnTheLowestRankThatHasIt) {
    const CheckpointRun runs;
    const ModelConfig config = runs.options().model;
    const StepPlan plan = plan_step(config, {.ranks = 2, .replicas = 2}, {}, {.microbatches = 3});
    World::threads(4, {.timeout_seconds = 30}).run([&](Communicator& world) {
        const auto device = make_host_device();
        TrainedRank rank(world, *device, plan);
        const RandomBatch batch(config, 1, 3, 1);
        rank.train_step(batch.microbatches(), 2 * batch.counted_tokens(), 1e-3);
        const auto found = [&] { return find_non_finite(world, rank.model(), rank.context()); };
        EXPECT_TRUE(found().losses.empty());
        const int replica = plan.mesh().replica(world.rank());
        const std::span<const double> losses = rank.output()->losses();
        ASSERT_EQ(losses.size(), 3U);
        // On the host the device's memory is ours.
        auto* const own = const_cast<double*>(losses.data());
        if (replica == 1) own[0] = NAN;
        if (replica == 0) own[2] = INFINITY;
        const NonFinite all = found();
        EXPECT_TRUE(all.weights.empty() && all.gradients.empty());
        ASSERT_EQ(all.losses.size(), 2U);
        EXPECT_EQ(all.losses[0].id, 2 * 0 + 1);
        EXPECT_EQ(all.losses[1].id, 2 * 2 + 0);
        for (const NonFinitePlace& place : all.losses) {
            int lowest = 0;
            while (plan.mesh().replica(lowest) != place.id % 2) ++lowest;
            EXPECT_EQ(place.rank, lowest);
        }
    });
}

/// Writes `value` into element `at` of an fp32 tensor of a safetensors file.
void overwrite(const std::string& path, const std::string& tensor, size_t at, float value) {
    std::string bytes = read_file(path);
    uint64_t head = 0;
    std::memcpy(&head, bytes.data(), sizeof head);
    const auto json = nlohmann::json::parse(bytes.substr(8, head));
    const auto begin = json.at(tensor).at("data_offsets").at(0).get<size_t>();
    std::memcpy(bytes.data() + 8 + head + begin + at * sizeof value, &value, sizeof value);
    write_file(path, bytes);
}

class NonFiniteRun : public ::testing::Test {
protected:
    /// A model of another program, with one weight that is `value`: no checksums tell.
    std::string damaged_model(const std::string& tensor, float value) {
        TrainOptions options = runs_.options();
        options.train_iters = 2;
        options.save = runs_.path("whole");
        (void)runs_.run(1, options);
        const std::string from = step_folder(options.save, 2);
        const std::string model = runs_.path("model");
        std::filesystem::create_directory(model);
        for (const char* name : {"config.json", "model.safetensors"}) {
            std::filesystem::copy_file(from + "/" + name, model + "/" + name);
        }
        overwrite(model + "/model.safetensors", tensor, 17, value);
        return model;
    }
    /// One weight is finite, but its products with the numbers of a layer are not.
    TrainOptions overflowing() {
        TrainOptions options = runs_.options();
        options.train_iters = 2;
        options.load = damaged_model("transformer.h.2.mlp.c_fc.weight", 3e38F);
        return options;
    }
    /// What the run printed, and how it ended.
    std::string run(int ranks, const TrainOptions& options) {
        ::testing::internal::CaptureStdout();
        try {
            curve_ = runs_.run(ranks, options);
        } catch (const AgreedError& error) {
            code_ = error.exit_code();
            error_ = error.what();
        }
        return ::testing::internal::GetCapturedStdout();
    }
    CheckpointRun runs_;
    std::vector<std::string> curve_;
    ExitCode code_ = ExitCode::ok;
    std::string error_;
};

TEST_F(NonFiniteRun, EndsAtOnceWhereAWeightIsDamagedAndNamesStepLayerAndRank) {
    for (const float value : {NAN, INFINITY}) {
        TrainOptions options = runs_.options();
        // Layers 2 and 3 of four are on the second of two ranks.
        options.load = damaged_model("transformer.h.2.mlp.c_fc.weight", value);
        (void)run(2, options);
        EXPECT_EQ(code_, ExitCode::wrong_values);
        EXPECT_THAT(error_, AllOf(StartsWith("step 1: loss "), HasSubstr("weights of 1 of "),
                                  HasSubstr("first transformer.h.2.mlp.c_fc.weight on rank 1; "),
                                  HasSubstr("; no later step can be right")));
        std::filesystem::remove_all(runs_.path("whole"));
        std::filesystem::remove_all(runs_.path("model"));
    }
}

TEST_F(NonFiniteRun, SkipsTheStepsAndNamesThemWhereOnlyGradientsAreNotAndIsNoSuccess) {
    const std::string output = run(2, overflowing());
    EXPECT_EQ(code_, ExitCode::wrong_values) << error_;
    EXPECT_THAT(error_, StartsWith("2 of 2 steps were skipped"));
    for (const char* step : {"step 1: ", "step 2: "}) {
        EXPECT_THAT(output, AllOf(HasSubstr(step), HasSubstr("; the loss"),
                                  HasSubstr("first in the backward transformer."),
                                  HasSubstr("; the step is skipped\n")));
    }
    EXPECT_THAT(output, Not(HasSubstr("; weights of")));
    EXPECT_THAT(output, HasSubstr("| update skipped\n"));
}

TEST_F(NonFiniteRun, EndsThereIfItIsToldToCheckAndSavesNothing) {
    TrainOptions options = overflowing();
    options.stop_at_non_finite = true;
    options.save = runs_.path("saved");
    (void)run(2, options);
    EXPECT_EQ(code_, ExitCode::wrong_values);
    EXPECT_THAT(error_, AllOf(StartsWith("step 1: "), HasSubstr("; the step changed no weight")));
    EXPECT_TRUE(complete_steps(options.save).empty());
}

}  // namespace
}  // namespace vocabpipe::testing

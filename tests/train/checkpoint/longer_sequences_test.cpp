// SPDX-License-Identifier: Apache-2.0
// Sequences beyond max_position_embeddings, which only learned positions cannot have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/checkpoint/hugging_face_models.hpp"

namespace vocabpipe::testing {
namespace {

constexpr int64_t kLength = 32;  // twice the positions of all models here
const nlohmann::json kNone = nlohmann::json::object();

/// The losses of a few steps of a model with other keys in its config.json.
std::vector<double> losses(const CheckpointRun& runs, const TransformersFiles& model,
                           const nlohmann::json& keys) {
    nlohmann::json config = nlohmann::json::parse(model.config);
    config.erase("rope_parameters");
    config.update(keys);
    write_model(runs.path("m"), config.dump(), weights_of(model, "F32"));
    TrainOptions options = runs.options();
    options.model = parse_model_config(config.dump(), "m");
    options.model.seq_length = kLength;
    options.load = runs.path("m");
    options.train_iters = 2;
    return CheckpointRun::losses(runs.run(2, options));
}

const TransformersFiles& model_of(std::string_view family) {
    for (const TransformersFiles& model : transformers_files()) {
        if (model.model_type == family) return model;
    }
    throw std::runtime_error(std::string(family));
}

TEST(LongerSequences, DoNotDependOnThePositionsOfARotaryModel) {
    const CheckpointRun runs;
    for (const TransformersFiles& model : transformers_files()) {
        if (std::string(model.model_type) == "gpt2") continue;
        SCOPED_TRACE(label(model));
        EXPECT_EQ(losses(runs, model, kNone),
                  losses(runs, model, {{"max_position_embeddings", 1000}}));
    }
}

TEST(LongerSequences, HaveTheThetaOfDynamicScaling) {
    const CheckpointRun runs;
    for (const char* const family : {"llama", "qwen3", "mixtral"}) {
        SCOPED_TRACE(family);
        const TransformersFiles& model = model_of(family);
        const auto d = static_cast<double>(config_of(model).head_size());
        const std::vector<double> dynamic = losses(
            runs, model,
            {{"rope_theta", 100.0}, {"rope_scaling", {{"type", "dynamic"}, {"factor", 5.0}}}});
        // transformers' formula, with sequences of twice the positions.
        const double theta = 100 * std::pow(5.0 * 2 - (5.0 - 1), d / (d - 2));
        const std::vector<double> plain = losses(runs, model, {{"rope_theta", theta}});
        ASSERT_EQ(dynamic.size(), plain.size());
        for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(dynamic[i], plain[i], 1e-6);
        EXPECT_NE(losses(runs, model, {{"rope_theta", 100.0}}), plain);
    }
}

TEST(LongerSequences, OfYarnAreWhatTheyAreWithMorePositions) {
    // Qwen 2.5's documented way beyond its trained length, with and without raising the positions.
    const CheckpointRun runs;
    const nlohmann::json yarn{
        {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
    const TransformersFiles& qwen = model_of("qwen2");
    const std::vector<double> as_documented = losses(runs, qwen, {{"rope_scaling", yarn}});
    EXPECT_EQ(as_documented,
              losses(runs, qwen, {{"rope_scaling", yarn}, {"max_position_embeddings", 64}}));
    EXPECT_NE(as_documented, losses(runs, qwen, kNone));
}

}  // namespace
}  // namespace vocabpipe::testing

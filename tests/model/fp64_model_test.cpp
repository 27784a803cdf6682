// SPDX-License-Identifier: Apache-2.0
// The fp64 model's own gradients are those of its loss; without this it could not judge others.
#include "tests/model/fp64_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/model/model_cases.hpp"
#include "tests/model/model_run.hpp"

namespace vocabpipe::testing {
namespace {

class Fp64Model : public ::testing::TestWithParam<ModelCase> {};

TEST_P(Fp64Model, GradientsAreThoseOfTheLossByFiniteDifferences) {
    const ModelCase& c = GetParam();
    const Batch batch = c.batch();
    Tensors weights = random_weights(c.config, 5);
    const Fp64Step step = fp64_step(c.config, batch, weights);
    // Central differences with step d: truncation d^2/6 f''' and rounding 2^-53 |loss| / d. With
    // d = 1e-5 and third derivatives up to some hundreds (init_std 0.3 makes steep norms): 1e-8.
    constexpr double kStep = 1e-5;
    double worst = 0;
    for (auto& [name, tensor] : weights) {
        if (!step.gradients.contains(name)) continue;  // a correction bias
        const std::vector<double>& gradient = step.gradients.at(name);
        const auto output = step.gradients.find(name + " (output)");
        const size_t stride = std::max<size_t>(1, tensor.size() / 8);  // about 8 coordinates
        for (size_t i = name.size() % stride; i < tensor.size(); i += stride) {
            const double kept = tensor[i];
            tensor[i] = kept + kStep;
            const double above = fp64_loss(c.config, batch, weights);
            tensor[i] = kept - kStep;
            const double below = fp64_loss(c.config, batch, weights);
            tensor[i] = kept;
            const double expected = (above - below) / (2 * kStep);
            const double actual =
                gradient[i] + (output == step.gradients.end() ? 0.0 : output->second[i]);
            worst = std::max(worst, std::abs(actual - expected));
            EXPECT_NEAR(actual, expected, 1e-8) << name << "[" << i << "]";
        }
    }
    RecordProperty("worst_difference", std::to_string(worst));
}

TEST_P(Fp64Model, LossWithoutGradientsIsTheSame) {
    const ModelCase& c = GetParam();
    const Batch batch = c.batch();
    const Tensors weights = random_weights(c.config, 5);
    const Fp64Step step = fp64_step(c.config, batch, weights);
    double total = step.router_loss;
    for (const double loss : step.losses) total += loss;
    for (const double loss : step.depth_losses) total += loss;
    EXPECT_DOUBLE_EQ(total, fp64_loss(c.config, batch, weights));
}

INSTANTIATE_TEST_SUITE_P(Models, Fp64Model, ::testing::ValuesIn(model_cases()), name_of_model);

TEST(ModelCases, HoldEveryFamily) {
    for (const std::string& family : model_families()) {
        EXPECT_TRUE(std::ranges::any_of(
            model_cases(), [&](const ModelCase& c) { return c.config.family == family; }))
            << family << ": add a row to model_cases()";
    }
}

TEST(Fp64ModelByHand, OneTokenWithZeroWeightsHasTheLossOfAUniformGuess) {
    // All weights 0, scales included: X = 0, so every logit is 0 and p = 1/V.
    ModelCase c{.name = "", .config = small_model(1, 1, 8, false), .microbatches = 1};
    c.config.z_loss = 0.5F;
    c.config.label_smoothing = 0.25F;
    Batch batch = c.batch();
    batch.labels[0][0] = 3;
    batch.loss_gradient[0][0] = 2.0F;
    Tensors weights = initial_weights(c.config, 1);
    for (auto& [name, tensor] : weights) std::fill(tensor.begin(), tensor.end(), 0.0);
    const double log_v = std::log(8.0);
    EXPECT_NEAR(fp64_loss(c.config, batch, weights), 2 * (log_v + 0.5 * log_v * log_v), 1e-14);
    // With ln_f.bias = b instead, X = b and dW_j = g (s p - target_j) b by hand.
    auto& bias = weights.at("transformer.ln_f.bias");
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<double>(i);
    const Fp64Step step = fp64_step(c.config, batch, weights);
    const std::vector<double>& dw = step.gradients.at("lm_head.weight");
    const double s_p = (1 + 2 * 0.5 * log_v) / 8;
    for (size_t j = 0; j < 8; ++j) {
        const double target = 0.25 / 8 + (j == 3 ? 0.75 : 0);
        for (size_t i = 0; i < bias.size(); ++i) {
            EXPECT_NEAR(dw[j * bias.size() + i], 2 * (s_p - target) * bias[i], 1e-13);
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing

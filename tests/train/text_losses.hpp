// SPDX-License-Identifier: Apache-2.0
// The loss of a step, text by text, in double: what training on any mesh must find.
#pragma once

#include "tests/model/model_run.hpp"
#include "tests/train/training_run.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// Tokens that see nothing else, with labels and weights.
struct Text {
    std::vector<int32_t> tokens, labels;
    std::vector<float> weights;
};

/// sum(w loss) / sum(w) over the labels of all texts, and its gradients, in double.
struct WeightedLoss {
    double loss = 0;
    double mean_of_means = 0;  ///< the mean of sum(w loss) / sum(w) of every text
    Tensors gradients;
};

inline WeightedLoss fp64_loss_of(const ModelConfig& config, const std::vector<Text>& texts,
                                 uint64_t seed) {
    const Tensors weights = initial_weights(config, seed);
    WeightedLoss found;
    double weight = 0;
    for (const Text& text : texts) {
        Batch batch;
        batch.seq_length = static_cast<int64_t>(text.tokens.size());
        batch.tokens = {text.tokens};
        batch.labels = {text.labels};
        batch.loss_gradient = {text.weights};
        const Fp64Step step = fp64_step(config, batch, weights);
        double of_text = 0;
        for (size_t i = 0; i < text.labels.size(); ++i) {
            if (text.labels[i] >= 0) of_text += static_cast<double>(text.weights[i]);
        }
        found.loss += step.losses[0];
        weight += of_text;
        if (of_text > 0) {
            found.mean_of_means += step.losses[0] / of_text / static_cast<double>(texts.size());
        }
        for (const auto& [name, values] : step.gradients) {
            std::vector<double>& sum = found.gradients[name];
            sum.resize(values.size());
            for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
        }
    }
    found.loss /= weight;
    for (auto& [name, values] : found.gradients) {
        for (double& value : values) value /= weight;
    }
    return found;
}

/// Two fp32 models of a few layers; gradients by the norm of their difference.
inline constexpr double kLossBound = 2e-6, kGradientBound = 2e-5;

inline void expect_loss(const Training& run, const WeightedLoss& expected) {
    EXPECT_NEAR(run.losses.front(), expected.loss, kLossBound * expected.loss);
    for (const auto& [name, values] : expected.gradients) {
        const auto found = run.gradients.find(name);
        ASSERT_NE(found, run.gradients.end()) << name;
        EXPECT_LE(relative_error(found->second, values), kGradientBound) << name;
    }
}

}  // namespace vocabpipe::testing

// SPDX-License-Identifier: Apache-2.0
// Norm, clipping and AdamW against the same in double, with gradients from the fp64 model.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "src/model/parameters.hpp"
#include "tests/model/model_run.hpp"
#include "tests/train/training_run.hpp"

namespace vocabpipe::testing {
namespace {

TrainingSetup setup_of(int ranks, VocabMode mode, bool tied, int steps) {
    TrainingSetup setup{.ranks = ranks, .microbatches = 3, .mode = mode, .steps = steps};
    setup.config.num_layers = 3;
    setup.config.hidden_size = 16;
    setup.config.ffn_hidden_size = 40;
    setup.config.num_attention_heads = 2;
    setup.config.seq_length = 7;
    setup.config.max_position_embeddings = 9;
    setup.config.vocab_size = 23;
    setup.config.tied = tied;
    setup.config.init_std = 0.3F;
    setup.learning_rate = {.lr = 0.01, .min_lr = 0.001, .warmup_iters = 2, .decay_iters = 3};
    return setup;
}

/// Decoupled weight decay, Adam's moments with bias correction, clipping by the global norm: as in
/// Loshchilov & Hutter and torch.optim.AdamW, in double.
class Fp64AdamW {
public:
    Fp64AdamW(const ModelConfig& config, const OptimizerOptions& options) : options_(options) {
        for (const LogicalParameter& p : logical_parameters(config)) decays_[p.name] = p.rows > 1;
    }

    /// Returns the norm before clipping.
    double step(Tensors& weights, const Tensors& gradients, double lr) {
        ++t_;
        double squares = 0;
        for (const auto& [name, g] : gradients) {
            for (const double v : g) squares += v * v;
        }
        const double norm = std::sqrt(squares);
        const double limit = options_.clip_grad;
        const double scale = limit > 0 && norm > limit ? limit / norm : 1;
        const double beta1 = options_.beta1;
        const double beta2 = options_.beta2;
        for (auto& [name, w] : weights) {
            const std::vector<double>& gradient = gradients.at(name);
            std::vector<double>& m = m_[name];
            std::vector<double>& v = v_[name];
            m.resize(w.size());
            v.resize(w.size());
            for (size_t i = 0; i < w.size(); ++i) {
                const double g = scale * gradient[i];
                m[i] = beta1 * m[i] + (1 - beta1) * g;
                v[i] = beta2 * v[i] + (1 - beta2) * g * g;
                const double mean = m[i] / (1 - std::pow(beta1, t_));
                const double square = v[i] / (1 - std::pow(beta2, t_));
                if (decays_.at(name)) w[i] *= 1 - lr * options_.weight_decay;
                w[i] -= lr * mean / (std::sqrt(square) + options_.epsilon);
            }
        }
        return norm;
    }

private:
    OptimizerOptions options_;
    std::map<std::string, bool> decays_;
    Tensors m_, v_;
    int t_ = 0;
};

/// One gradient per weight: the two sides of a tied one added up.
Tensors added_up(Tensors gradients) {
    const auto output = gradients.find("transformer.wte.weight (output)");
    if (output == gradients.end()) return gradients;
    std::vector<double>& input = gradients.at("transformer.wte.weight");
    for (size_t i = 0; i < input.size(); ++i) input[i] += output->second[i];
    gradients.erase(output);
    return gradients;
}

struct Case {
    int ranks;
    VocabMode mode;
    bool tied;
    float clip_grad;
    float weight_decay;
};

class ThreeSteps : public ::testing::TestWithParam<Case> {};

TEST_P(ThreeSteps, EndAtTheWeightsOfTheFp64ModelAndOptimizer) {
    const Case& c = GetParam();
    TrainingSetup setup = setup_of(c.ranks, c.mode, c.tied, 3);
    setup.optimizer.clip_grad = c.clip_grad;
    setup.optimizer.weight_decay = c.weight_decay;
    // AdamW divides a gradient by its own size, so that where the true gradient is 0 (the keys'
    // bias) rounding alone would decide. Epsilon limits the slope: an error d of g moves the weight
    // by lr d / epsilon at most. d is 1.3e-6 of a tensor's norm as measured in
    // tests/model/oracle_test.cpp, spread over 16 elements or more of gradients below 3: 1e-6 each,
    // so that three steps (warm-up 1/2, 1, decay 1/10) add up to 0.016 * 1e-6 / 1e-2 = 1.6e-6. The
    // weights themselves, up to 2, round to 1.2e-7 three times. Measured: 1.5e-7.
    setup.optimizer.epsilon = 1e-2F;
    constexpr double kWeightBound = 2e-6;

    const Training actual = train_on_threads(setup);
    Tensors weights = initial_weights(setup.config, setup.seed);
    const Tensors start = weights;
    Fp64AdamW adamw(setup.config, setup.optimizer);
    for (int step = 1; step <= 3; ++step) {
        const Fp64Step gradients = fp64_step(setup.config, toy_batch(setup, step), weights);
        double loss = 0;
        for (const double part : gradients.losses) loss += part;
        const double lr = step == 1 ? 0.005 : step == 2 ? 0.01 : 0.001;
        const double norm = adamw.step(weights, added_up(gradients.gradients), lr);
        const auto at = static_cast<size_t>(step) - 1;
        EXPECT_NEAR(actual.losses[at], loss, 2e-6 * (1 + loss)) << step;
        EXPECT_NEAR(actual.grad_norms[at], norm, 5e-6 * norm) << step;
        if (c.clip_grad > 0) {
            EXPECT_GT(norm, 1.2 * c.clip_grad) << "clips";
        }
    }
    double worst = 0;
    double moved = 0;
    for (const auto& [name, w] : weights) {
        for (size_t i = 0; i < w.size(); ++i) {
            const double error = std::abs(actual.weights.at(name)[i] - w[i]);
            worst = std::max(worst, error);
            moved = std::max(moved, std::abs(w[i] - start.at(name)[i]));
            ASSERT_LE(error, kWeightBound) << name << "[" << i << "]";
        }
    }
    std::cout << "worst weight " << worst << ", largest move " << moved << "\n";
    EXPECT_GT(moved, 100 * kWeightBound);
}

INSTANTIATE_TEST_SUITE_P(Optimizer, ThreeSteps,
                         ::testing::Values(Case{1, VocabMode::none, false, 0.5F, 0.1F},
                                           Case{3, VocabMode::none, true, 0.5F, 0.1F},
                                           Case{3, VocabMode::one_barrier, false, 0.5F, 0.1F},
                                           Case{3, VocabMode::one_barrier, true, 0.5F, 0.1F},
                                           Case{2, VocabMode::two_barriers, true, 0, 0.1F},
                                           Case{2, VocabMode::interlaced, false, 0, 5.0F}),
                         [](const ::testing::TestParamInfo<Case>& info) {
                             const Case& c = info.param;
                             return std::string(c.tied ? "Tied" : "Untied") + "P" +
                                    std::to_string(c.ranks) +
                                    (c.mode == VocabMode::none ? "Whole" : "Sharded") +
                                    (c.clip_grad > 0 ? "Clipped" : "Unclipped") +
                                    (c.weight_decay > 1 ? "StrongDecay" : "");
                         });

// With the pipeline's own gradient there is no error to amplify, so the ordinary epsilon is fine.
TEST(FirstStep, MovesEveryWeightByLrTimesTheSignOfItsGradient) {
    // t = 1: m / (1 - beta1) = g and v / (1 - beta2) = g^2: w' = w - lr g / (|g| + epsilon).
    TrainingSetup setup = setup_of(3, VocabMode::one_barrier, true, 1);
    setup.optimizer.weight_decay = 0;
    setup.optimizer.clip_grad = 0;
    const Tensors before = initial_weights(setup.config, setup.seed);
    const Training after = train_on_threads(setup);
    for (const auto& [name, w] : before) {
        for (size_t i = 0; i < w.size(); ++i) {
            const double g = after.gradients.at(name)[i];
            const double expected = w[i] - 0.005 * g / (std::abs(g) + setup.optimizer.epsilon);
            // Half a unit in the last place of weights up to 2, and a few of the update's own.
            ASSERT_NEAR(after.weights.at(name)[i], expected, 2e-7) << name << "[" << i << "]";
        }
    }
}

TEST(FirstStep, IsScaledByClippingOnlyThroughEpsilon) {
    // Norm and clipping: with epsilon far above the clipped gradient the update is proportional to
    // it: w' - w = -lr clip g / norm / epsilon.
    TrainingSetup setup = setup_of(2, VocabMode::two_barriers, false, 1);
    setup.optimizer.weight_decay = 0;
    setup.optimizer.clip_grad = 1e-3F;
    setup.optimizer.epsilon = 1.0F;
    setup.learning_rate = {.lr = 1000, .warmup_iters = 1, .decay_iters = 2};
    const Tensors before = initial_weights(setup.config, setup.seed);
    const Training after = train_on_threads(setup);
    double squares = 0;
    for (const auto& [name, g] : after.gradients) {
        for (const float v : g) squares += static_cast<double>(v) * v;
    }
    const double norm = std::sqrt(squares);
    EXPECT_NEAR(after.grad_norms[0], norm, 1e-12 * norm);
    for (const auto& [name, w] : before) {
        for (size_t i = 0; i < w.size(); ++i) {
            const double clipped = 1e-3 / norm * after.gradients.at(name)[i];
            const double expected = w[i] - 1000 * clipped / (std::abs(clipped) + 1);
            // 1e-6 / norm of the clip factor's own guard against norm 0, and rounding.
            ASSERT_NEAR(after.weights.at(name)[i], expected, 2e-6) << name << "[" << i << "]";
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing

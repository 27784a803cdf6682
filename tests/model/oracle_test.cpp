// SPDX-License-Identifier: Apache-2.0
// The single-rank oracle, and a pipeline with sharded vocabulary layers, against the fp64 model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "tests/model/fp64_model.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/model/model_run.hpp"
#include "vocabpipe/make_schedule.hpp"

namespace vocabpipe::testing {
namespace {

// Bound of the fp32 error of a tensor relative to its norm, u = 2^-24. Every operator rounds each
// result once and sums K <= 63 products (h, f, V or N of these models), with an error of about
// sqrt(K) u <= 8 u relative to the result's norm as long as roundings are independent. A gradient
// has passed at most 12 such operators per layer and direction and 3 around them: 12 * 2 * 4 + 3 <
// 100 for 4 layers, adding up like sqrt(100): 8 u * 10 = 4.8e-6. Measured: median 1.1e-6. One
// gradient, of the first k_norm of Olmo2, is a sum that cancels with these weights (1e-6 to 2e-6
// with those of eleven other seeds): 4.1e-6 to 5.8e-6 as attention adds up in one order or another.
constexpr double kFp32Bound = 7e-6;
// The error of a loss relative to 1 + loss: the logits' error at the end of the forward, 8 u times
// sqrt(48) times logits up to 10, a mean over tokens. Measured: 2.1e-7.
constexpr double kFp32LossBound = 2e-6;

Schedule schedule_of(const ModelCase& c, VocabMode mode) {
    return make_schedule("1f1b", {.ranks = c.ranks,
                                  .microbatches = c.microbatches,
                                  .vocab_mode = mode,
                                  .vocab_size = c.config.vocab_size});
}

void expect_agreement(const Gradients& actual, const Fp64Step& expected, double bound,
                      double mean_bound, double loss_bound) {
    const WorstError worst = worst_error(actual, expected.gradients);
    EXPECT_LE(worst.value, bound) << worst.name;
    EXPECT_LE(worst.mean, mean_bound);
    double loss_error = 0;
    const auto expect_losses = [&](const std::vector<double>& got,
                                   const std::vector<double>& want) {
        ASSERT_EQ(got.size(), want.size());
        for (size_t j = 0; j < got.size(); ++j) {
            EXPECT_NEAR(got[j], want[j], loss_bound * (1 + want[j]));
            loss_error = std::max(loss_error, std::abs(got[j] - want[j]));
        }
    };
    expect_losses(actual.losses, expected.losses);
    expect_losses(actual.depth_losses, expected.depth_losses);
    std::cout << "worst tensor " << worst.value << " (" << worst.name << "), mean " << worst.mean
              << ", loss " << loss_error << "\n";
}

class Oracle : public ::testing::TestWithParam<ModelCase> {};

TEST_P(Oracle, LossAndEveryGradientAreThoseOfTheFp64Model) {
    const ModelCase& c = GetParam();
    const Schedule schedule = schedule_of(c, VocabMode::one_barrier);
    const Batch batch = c.batch();
    const ModelPartition partition = even_partition(c.config, schedule, c.sequences);
    expect_agreement(run_single_rank(c.config, partition, schedule, batch, 7),
                     fp64_step(c.config, batch, initial_weights(c.config, 7)), kFp32Bound,
                     kFp32Bound, kFp32LossBound);
}

TEST_P(Oracle, GradientsAreFiniteDifferencesOfTheFp64Loss) {
    const ModelCase& c = GetParam();
    const Schedule schedule = schedule_of(c, VocabMode::none);
    const Batch batch = c.batch();
    const Gradients actual = run_single_rank(
        c.config, even_partition(c.config, schedule, c.sequences), schedule, batch, 7);
    Tensors weights = initial_weights(c.config, 7);
    constexpr double kStep = 1e-5;  // error 1e-8, see fp64_model_test.cpp
    for (auto& [name, tensor] : weights) {
        if (!actual.by_name.contains(name)) continue;  // a correction bias
        const std::vector<float>& gradient = actual.by_name.at(name);
        const auto output = actual.by_name.find(name + " (output)");
        double largest = 0;
        for (size_t i = 0; i < gradient.size(); ++i) {
            largest = std::max<double>(largest, std::abs(gradient[i]));
        }
        const size_t stride = std::max<size_t>(1, tensor.size() / 5);
        for (size_t i = name.size() % stride; i < tensor.size(); i += stride) {
            const double kept = tensor[i];
            tensor[i] = kept + kStep;
            const double above = fp64_loss(c.config, batch, weights);
            tensor[i] = kept - kStep;
            const double below = fp64_loss(c.config, batch, weights);
            tensor[i] = kept;
            double value = gradient[i];
            if (output != actual.by_name.end()) value += output->second[i];
            EXPECT_NEAR(value, (above - below) / (2 * kStep), 1e-8 + 10 * kFp32Bound * largest)
                << name << "[" << i << "]";
        }
    }
}

TEST_P(Oracle, PipelinesAgreeWithTheFp64ModelForAnyWeights) {
    const ModelCase& c = GetParam();
    const Batch batch = c.batch();
    const Tensors weights = random_weights(c.config, 3);
    const Fp64Step expected = fp64_step(c.config, batch, weights);
    for (const VocabMode mode :
         {VocabMode::none, VocabMode::one_barrier, VocabMode::two_barriers}) {
        SCOPED_TRACE(to_string(mode));
        expect_agreement(run_with_weights(c.config, schedule_of(c, mode), batch, weights), expected,
                         kFp32Bound, kFp32Bound, kFp32LossBound);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Oracle, ::testing::ValuesIn(model_cases()), name_of_model);

TEST(OracleWithoutLabels, StepHasLossZeroAndAllGradientsExactlyZero) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        for (const bool tied : {false, true}) {
            ModelCase c{.name = "", .config = small_model(2, 5, 29, tied), .ignored = 1};
            c.config.dtype = dtype;
            c.config.label_smoothing = 0.1F;
            c.config.z_loss = 0.01F;
            const Batch batch = c.batch();
            ASSERT_EQ(batch.counted_tokens, 0);
            const Schedule schedule = schedule_of(c, VocabMode::one_barrier);
            const Gradients oracle = run_single_rank(
                c.config, even_partition(c.config, schedule, 1), schedule, batch, 7);
            const Gradients pipeline =
                run_with_weights(c.config, schedule, batch, random_weights(c.config, 3));
            for (const Gradients* run : {&oracle, &pipeline}) {
                EXPECT_EQ(run->losses, (std::vector<double>{0, 0}));
                for (const auto& [name, gradient] : run->by_name) {
                    EXPECT_EQ(std::count(gradient.begin(), gradient.end(), 0.0F),
                              static_cast<int64_t>(gradient.size()))
                        << name;
                }
            }
        }
    }
}

TEST(OracleWithoutLabels, DepthsBeyondTheSequenceCountForNothing) {
    ModelCase c{.name = "", .config = small_family("llama", 2, 2, 29, false)};
    c.config.mtp_num_layers = 3;  // of which two have no label in sequences of 2 tokens
    const Schedule schedule = schedule_of(c, VocabMode::one_barrier);
    const Gradients run =
        run_with_weights(c.config, schedule, c.batch(), random_weights(c.config, 3));
    ASSERT_EQ(run.depth_losses.size(), 6U);
    EXPECT_GT(run.depth_losses[0], 0);
    EXPECT_EQ(std::count(run.depth_losses.begin() + 2, run.depth_losses.end(), 0.0), 4);
    const auto is_zero = [&](const std::string& name) {
        const std::vector<float>& gradient = run.by_name.at(name);
        return std::ranges::all_of(gradient, [](float g) { return g == 0; });
    };
    EXPECT_FALSE(is_zero("model.layers.2.eh_proj.weight"));
    EXPECT_TRUE(is_zero("model.layers.3.eh_proj.weight"));
    EXPECT_TRUE(is_zero("model.layers.4.shared_head.norm.weight"));
}

TEST(OracleWithoutLabels, IgnoredTokensCountForNothingWhateverTheirG) {
    // g of an ignored token is not 0 here: the label decides.
    ModelCase c{.name = "", .config = small_model(2, 5, 29, false), .ignored = 0.4};
    c.config.label_smoothing = 0.1F;
    c.config.z_loss = 0.01F;
    Batch batch = c.batch();
    const Schedule schedule = schedule_of(c, VocabMode::two_barriers);
    const ModelPartition partition = even_partition(c.config, schedule, 1);
    const Gradients expected = run_single_rank(c.config, partition, schedule, batch, 7);
    for (size_t j = 0; j < batch.labels.size(); ++j) {
        for (size_t n = 0; n < batch.labels[j].size(); ++n) {
            if (batch.labels[j][n] < 0) batch.loss_gradient[j][n] = 123.0F;
        }
    }
    EXPECT_EQ(first_difference(expected, run_single_rank(c.config, partition, schedule, batch, 7)),
              "");
}

// --- bf16
// ----------------------------------------------------------------------------------------

class OracleInBf16 : public ::testing::TestWithParam<ModelCase> {};

// Weights are rounded beforehand, in both. Every operator's result is rounded to bf16: a relative
// error of 2^-9 at most and of 2^-9 / sqrt(3) = 1.1e-3 in the mean. A gradient has seen at most 12
// of those per layer and direction, 24 L + 3 in all: sqrt(99) 1.1e-3 = 1.1 % for 4 layers. Norms of
// rows with a small variance and sharp softmaxes amplify what comes from above: by 3.5 at most for
// these seeds in the mean over all tensors, and by 9 in a tensor in which the tokens' gradients
// cancel besides (the scale of a norm). Measured: mean 2.7 %, worst 6.3 % (others below 3.6 %).
constexpr double kBf16Bound = 0.1;
constexpr double kBf16MeanBound = 0.04;
constexpr double kBf16LossBound = 5e-3;
// A token that bf16 sends to another expert gets another gradient. Logits of the router, of about
// 1, have the error of what has been rounded before them, so such a model is not compared where
// some token's choice is a closer one.
constexpr double kBf16Gap = 0.01;

TEST_P(OracleInBf16, GradientsAgreeWithTheFp64ModelWithinAFewPercent) {
    ModelCase c = GetParam();
    c.config.dtype = DType::bf16;
    const Schedule schedule = schedule_of(c, VocabMode::one_barrier);
    const Batch batch = c.batch();
    const ModelPartition partition = even_partition(c.config, schedule, c.sequences);
    bool compared = false;
    const auto expect = [&](const Gradients& actual, const Fp64Step& expected) {
        if (expected.least_gap < kBf16Gap) return;
        expect_agreement(actual, expected, kBf16Bound, kBf16MeanBound, kBf16LossBound);
        compared = true;
    };
    expect(run_single_rank(c.config, partition, schedule, batch, 7),
           fp64_step(c.config, batch, initial_weights(c.config, 7)));
    const Tensors weights = random_weights(c.config, 3);
    expect(run_with_weights(c.config, schedule, batch, weights),
           fp64_step(c.config, batch, weights));
    if (!compared) GTEST_SKIP() << "some token's choice of experts is too close for bf16";
}

INSTANTIATE_TEST_SUITE_P(Models, OracleInBf16, ::testing::ValuesIn(model_cases()), name_of_model);

}  // namespace
}  // namespace vocabpipe::testing

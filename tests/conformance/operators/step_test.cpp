// SPDX-License-Identifier: Apache-2.0
// What runs once per step, but AdamW: sums of squares and losses, and what a step's sums come to.
#include <cmath>
#include <limits>

#include "kernels/host/operators.hpp"
#include "tests/conformance/operator_test.hpp"
#include "tests/conformance/random_numbers.hpp"
#include "vocabpipe/step_scalars.hpp"

namespace vocabpipe::kernels::test {
namespace {

class SumOfSquares : public OperatorTest<> {
protected:
    [[nodiscard]] double sum(const Matrix& values, double start = 0) const {
        const auto result = up(std::vector{start});
        ops().sum_of_squares(ctx(), up(values), result.data());
        return result.download()[0];
    }
};

TEST_P(SumOfSquares, AddsTheSumInDoubleForAnyShapeAndStride) {
    for (const auto& [rows, cols] :
         {std::pair{0, 5}, {1, 1}, {1, 15}, {1, 4096}, {1, 4097}, {1, 4099}, {61, 333}}) {
        const Matrix values = Matrix::random(rows, cols, DType::fp32, 5, -3, 3);  // with gaps
        const Matrix dense = random_with_gap(rows, cols, DType::fp32, 0, 5, -3, 3);
        double expected = 0;
        reference::sum_of_squares(host, values, &expected);
        // All addends are positive: at most 20313 additions of unit roundoff 2^-53.
        EXPECT_NEAR(sum(values), expected, 20313 * 0x1p-53 * expected);
        EXPECT_EQ(sum(dense), sum(values));
        EXPECT_NEAR(sum(dense, 2.5), 2.5 + sum(dense), 20313 * 0x1p-53 * expected);
    }
}

TEST_P(SumOfSquares, IsNotFiniteIfAnyElementIsNotAndFiniteForEveryFiniteFloat) {
    constexpr float kMax = std::numeric_limits<float>::max();
    for (const int64_t at : {0, 17, 2996}) {
        for (const double bad : {NAN, INFINITY, -INFINITY}) {
            Matrix values = Matrix::random(3, 999, DType::fp32, 6);
            values.set(at / 999, at % 999, bad);
            EXPECT_FALSE(std::isfinite(sum(values)));
            values.set(at / 999, at % 999, kMax);
            EXPECT_TRUE(std::isfinite(sum(values)));
        }
    }
    const Matrix large = Matrix(1, 5000, DType::fp32).mapped(DType::fp32, [](double) {
        return static_cast<double>(kMax);
    });
    EXPECT_TRUE(std::isfinite(sum(large)));
}

INSTANTIATE_TEST_SUITE_P(Devices, SumOfSquares,
                         testing::Combine(testing::ValuesIn(devices_under_test())), kNames);

class StepReport : public OperatorTest<> {
protected:
    /// The scalars of a step whose reports have `entries` each; `more` behind the stop request.
    [[nodiscard]] StepScalars finished(const std::vector<double>& reports, int64_t entries = 3,
                                       const StepScalars& before = {.counted_tokens = 1},
                                       int64_t more = 0) const {
        const auto scalars = up(std::vector{before});
        ops().finish_report(ctx(), up(reports), entries, entries - 2 - more, scalars.data());
        return scalars.download()[0];
    }
    /// The scale on one rank whose gradient has this norm.
    [[nodiscard]] float gradient_scale(double norm, float clip) const {
        return finished({norm * norm, 0, 0}, 3, {.clip_grad = clip, .counted_tokens = 1})
            .gradient_scale;
    }
};

TEST_P(StepReport, AddsUpTheRanksEntriesEachByItself) {
    const StepScalars scalars = finished({9, 0.5, 1, 16, 0.25, 0, 0, 0.125, 1});
    EXPECT_EQ(scalars.grad_norm, 5);
    EXPECT_EQ(scalars.loss, 0.875);
    EXPECT_EQ(scalars.stops, 2);
    EXPECT_EQ(scalars.update, 1);
    EXPECT_EQ(scalars.gradient_scale, 1) << "no clipping";
}

TEST_P(StepReport, AllSquaresAreOfTheNormAndWhatFollowsTheStopRequestIsNot) {
    // Two ranks: three squares, loss, stop request, two more.
    const StepScalars scalars = finished({1, 2, 4, 0.5, 1, 100, 100, 8, 16, 5, 0.25, 1, 100, 100},
                                         7, {.counted_tokens = 1}, 2);
    EXPECT_EQ(scalars.grad_norm, 6);
    EXPECT_EQ(scalars.loss, 0.75);
    EXPECT_EQ(scalars.stops, 2);
}

TEST_P(StepReport, IsThatOfTheHostForAnyNumberOfSlotsAndRanks) {
    for (const int64_t slots : {2, 3, 255, 256, 257, 258, 700}) {
        for (const int64_t ranks : {1, 3}) {
            for (const float clip : {0.0F, 0.25F, 1e6F}) {
                std::vector<double> reports;
                for (const float value : random_numbers(slots * ranks, 3)) {
                    reports.push_back(value * value);
                }
                const StepScalars before{.clip_grad = clip, .counted_tokens = 5};
                StepScalars expected = before;
                const int64_t more = slots > 256 ? 255 : 0;  // entries of no concern
                host::finish_report(host, reports, slots, slots - 2 - more, &expected);
                const StepScalars actual = finished(reports, slots, before, more);
                EXPECT_EQ(actual.loss, expected.loss);
                EXPECT_EQ(actual.stops, expected.stops);
                EXPECT_EQ(actual.update, 1);
                EXPECT_EQ(actual.counted_tokens, 5);
                // The same additions in the same order; the square root and quotient are rounded
                // correctly on both.
                EXPECT_DOUBLE_EQ(actual.grad_norm, expected.grad_norm);
                EXPECT_FLOAT_EQ(actual.gradient_scale, expected.gradient_scale);
            }
        }
    }
}

// As torch.nn.utils.clip_grad_norm_: max_norm / (norm + 1e-6), at most 1.
TEST_P(StepReport, ScalesToTheLargestNormAsPyTorchDoes) {
    EXPECT_EQ(gradient_scale(1, 1), static_cast<float>(1 / (1 + 1e-6)));
    EXPECT_LT(gradient_scale(1, 1), 1);
    EXPECT_EQ(gradient_scale(4, 1), static_cast<float>(1 / (4 + 1e-6)));
    EXPECT_EQ(gradient_scale(4, 2), static_cast<float>(2 / (4 + 1e-6)));
    EXPECT_EQ(gradient_scale(1, 2), 1);
    EXPECT_EQ(gradient_scale(0, 1), 1);
    EXPECT_EQ(gradient_scale(0, 1e-7F), static_cast<float>(double{1e-7F} / 1e-6));
    EXPECT_EQ(gradient_scale(4, 0), 1);
}

TEST_P(StepReport, UpdatesNothingWithoutATokenOrWithASumThatIsNotFinite) {
    EXPECT_EQ(finished({4, 1, 0}, 3, {.clip_grad = 1, .counted_tokens = 0}).update, 0);
    for (const float clip : {0.0F, 1.0F}) {
        const StepScalars before{.clip_grad = clip, .counted_tokens = 5};
        EXPECT_EQ(finished({4, 1, 0}, 3, before).update, 1);
        for (const double bad : {INFINITY, -INFINITY, NAN}) {
            EXPECT_EQ(finished({bad, 1, 0}, 3, before).update, 0);
            EXPECT_EQ(finished({4, bad, 0}, 3, before).update, 0) << "of the loss";
            EXPECT_EQ(finished({4, 1, 0, 4, bad, 0}, 3, before).update, 0) << "of another rank";
        }
    }
}

TEST_P(StepReport, WeightedSumIsThatOfDoubles) {
    const auto weighted_sum = [&](const std::vector<float>& values,
                                  const std::vector<float>& weights) {
        const auto sum = up(std::vector<double>{NAN});  // overwritten
        ops().weighted_sum(ctx(), up(values), up(weights), sum.data());
        return sum.download()[0];
    };
    for (const int64_t count : {0, 1, 255, 1000}) {
        const auto values = random_numbers(count, 1), weights = random_numbers(count, 2);
        double expected = 0, magnitude = 0;
        for (size_t i = 0; i < values.size(); ++i) {
            expected += static_cast<double>(values[i]) * weights[i];
            magnitude += std::abs(static_cast<double>(values[i]) * weights[i]);
        }
        EXPECT_NEAR(weighted_sum(values, weights), expected, 2 * 1000 * 0x1p-53 * magnitude);
    }
    EXPECT_EQ(weighted_sum({0x1p24F, 1, 3}, {2, 1, 0.5F}), 0x1p25 + 1 + 1.5);
}

TEST_P(StepReport, AddUpKeepsTheOrder) {
    const auto sum_of = [&](double start, const std::vector<double>& values) {
        const auto sum = up(std::vector{start});
        ops().add_up(ctx(), up(values), sum.data());
        ops().add_up(ctx(), {}, sum.data());
        return sum.download()[0];
    };
    EXPECT_EQ(sum_of(0.5, {1e16, 1.0, -1e16, 3.0}), (((0.5 + 1e16) + 1.0) - 1e16) + 3.0);
    EXPECT_EQ(sum_of(0x1p53, {1, 1}), 0x1p53) << "each 1 is rounded away";
    EXPECT_EQ(sum_of(0, {1, 1, 0x1p53}), 0x1p53 + 2);
}

INSTANTIATE_TEST_SUITE_P(Devices, StepReport,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

}  // namespace
}  // namespace vocabpipe::kernels::test

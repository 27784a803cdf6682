// SPDX-License-Identifier: Apache-2.0
// What a step's sums come to, by hand, on the host.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/host/operators.hpp"

namespace vocabpipe::kernels {
namespace {

/// The scalars of a step whose reports have one sum of squares, loss and stop request each.
StepScalars finished(std::vector<double> reports, StepScalars scalars = {.counted_tokens = 1}) {
    Context ctx({.threads = 1, .poll = {}});
    host::finish_report(ctx, reports, 3, 1, &scalars);
    return scalars;
}
/// The scale on one rank whose gradient has this norm.
float gradient_scale(double norm, float clip) {
    return finished({norm * norm, 0, 0}, {.clip_grad = clip, .counted_tokens = 1}).gradient_scale;
}

TEST(FinishReport, AddsUpTheRanksEntriesEachByItself) {
    const StepScalars scalars = finished({9, 0.5, 1, 16, 0.25, 0, 0, 0.125, 1});
    EXPECT_EQ(scalars.grad_norm, 5);
    EXPECT_EQ(scalars.loss, 0.875);
    EXPECT_EQ(scalars.stops, 2);
    EXPECT_EQ(scalars.update, 1);
    EXPECT_EQ(scalars.gradient_scale, 1) << "no clipping";
}

TEST(FinishReport, AllSquaresOfAReportAreOfTheNormAndWhatFollowsTheStopRequestIsNot) {
    Context ctx({.threads = 1, .poll = {}});
    // Two ranks: three squares, loss, stop request, two more.
    const std::vector<double> reports{1, 2, 4, 0.5, 1, 100, 100, 8, 16, 5, 0.25, 1, 100, 100};
    StepScalars scalars{.counted_tokens = 1};
    host::finish_report(ctx, reports, 7, 3, &scalars);
    EXPECT_EQ(scalars.grad_norm, 6);
    EXPECT_EQ(scalars.loss, 0.75);
    EXPECT_EQ(scalars.stops, 2);
}

// As torch.nn.utils.clip_grad_norm_: max_norm / (norm + 1e-6), at most 1.
TEST(FinishReport, ScalesToTheLargestNormAsPyTorchDoes) {
    EXPECT_EQ(gradient_scale(1, 1), static_cast<float>(1 / (1 + 1e-6)));
    EXPECT_LT(gradient_scale(1, 1), 1);
    EXPECT_EQ(gradient_scale(4, 1), static_cast<float>(1 / (4 + 1e-6)));
    EXPECT_EQ(gradient_scale(4, 2), static_cast<float>(2 / (4 + 1e-6)));
    EXPECT_EQ(gradient_scale(1, 2), 1);
    EXPECT_EQ(gradient_scale(0, 1), 1);
    EXPECT_EQ(gradient_scale(0, 1e-7F), static_cast<float>(double{1e-7F} / 1e-6));
    EXPECT_EQ(gradient_scale(4, 0), 1);
}

TEST(FinishReport, UpdatesNothingWithoutATokenOrWithASumThatIsNotFinite) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(finished({4, 1, 0}, {.counted_tokens = 0}).update, 0);
    EXPECT_EQ(finished({4, 1, 0}, {.counted_tokens = 1}).update, 1);
    for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
        EXPECT_EQ(finished({bad, 1, 0}).update, 0);
        EXPECT_EQ(finished({4, bad, 0}).update, 0);
        EXPECT_EQ(finished({4, 1, 0, 4, bad, 0}).update, 0) << "of another rank";
    }
}

TEST(WeightedSum, AddsProductsInDouble) {
    Context ctx({.threads = 1, .poll = {}});
    const std::array<float, 3> values{0x1p24F, 1, 3}, weights{2, 1, 0.5F};
    double sum = std::nan("");  // overwritten
    host::weighted_sum(ctx, values, weights, &sum);
    EXPECT_EQ(sum, 0x1p25 + 1 + 1.5);
}

TEST(AddUp, AddsInOrderToWhatIsThere) {
    Context ctx({.threads = 1, .poll = {}});
    double sum = 0x1p53;
    host::add_up(ctx, std::array{1.0, 1.0}, &sum);
    EXPECT_EQ(sum, 0x1p53) << "each 1 is rounded away";
    sum = 0;
    host::add_up(ctx, std::array{1.0, 1.0, 0x1p53}, &sum);
    EXPECT_EQ(sum, 0x1p53 + 2);
}

}  // namespace
}  // namespace vocabpipe::kernels

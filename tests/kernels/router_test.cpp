// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "kernels/host/operators.hpp"
#include "kernels/reference/operators.hpp"
#include "tests/kernels/matrix.hpp"
#include "tests/kernels/router_cases.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

Routed route(Context& ctx, const Matrix& logits, ConstTensor bias, const RouterOptions& options) {
    Routed result(logits.rows(), logits.cols(), options.top_k, DType::fp32);
    host::router_forward(ctx, logits, bias, options, result.choice, result.weights, result.load,
                         result.score_sums, result.log_z);
    return result;
}

/// One row per list.
Matrix matrix_of(const std::vector<std::vector<double>>& rows) {
    Matrix result(std::ssize(rows), std::ssize(rows.at(0)), DType::fp32);
    for (size_t row = 0; row < rows.size(); ++row) {
        for (size_t col = 0; col < rows[row].size(); ++col) {
            result.set(static_cast<int64_t>(row), static_cast<int64_t>(col), rows[row][col]);
        }
    }
    return result;
}

class RouterOfCase : public testing::TestWithParam<RouterCase> {
protected:
    Context ctx{{.threads = 1, .poll = {}}};
};

TEST_P(RouterOfCase, AgreesWithTheReferenceInBothDirections) {
    const RouterProblem p(GetParam());
    const Routed exact = p.exact(ctx);
    const Routed actual = route(ctx, p.logits, p.some_bias(), p.options);
    expect_routed(actual, exact);
    Matrix dlogits(p.logits.rows(), p.logits.cols(), DType::fp32);
    host::router_backward(ctx, p.logits, actual.log_z, actual.choice, p.dweights, actual.load,
                          p.options, p.scales, dlogits);
    expect_gradient(dlogits, p, exact, ctx);
}

TEST_P(RouterOfCase, BitsAreTheSameForOneAndTwoThreads) {
    Context two({.threads = 2, .poll = {}});
    RouterCase large = GetParam();
    large.tokens = 40000 / large.experts;  // enough to wake a team
    const RouterProblem p(large);
    const Routed one_routed = route(ctx, p.logits, p.some_bias(), p.options);
    const Routed two_routed = route(two, p.logits, p.some_bias(), p.options);
    EXPECT_EQ(one_routed.choice, two_routed.choice);
    EXPECT_TRUE(one_routed.weights.same_bits(two_routed.weights));
    EXPECT_TRUE(one_routed.load.same_bits(two_routed.load));
    EXPECT_TRUE(one_routed.score_sums.same_bits(two_routed.score_sums));
    EXPECT_TRUE(one_routed.log_z.same_bits(two_routed.log_z));
    Matrix d1(p.logits.rows(), p.logits.cols(), DType::fp32);
    Matrix d2(p.logits.rows(), p.logits.cols(), DType::fp32);
    host::router_backward(ctx, p.logits, one_routed.log_z, one_routed.choice, p.dweights,
                          one_routed.load, p.options, p.scales, d1);
    host::router_backward(two, p.logits, one_routed.log_z, one_routed.choice, p.dweights,
                          one_routed.load, p.options, p.scales, d2);
    EXPECT_TRUE(d1.same_bits(d2));
}

TEST_P(RouterOfCase, ReferenceGradientIsThatOfFiniteDifferences) {
    RouterCase small = GetParam();
    small.tokens = std::min<int64_t>(small.tokens, 4);
    const RouterProblem p(small, 20);
    auto logits = p.logits.as(DType::fp64);
    const Routed at = p.exact(ctx);
    const auto loss = [&] {
        Routed routed(logits.rows(), logits.cols(), p.options.top_k, DType::fp64);
        reference::router_forward(ctx, logits, p.some_bias(), p.options, routed.choice,
                                  routed.weights, routed.load, routed.score_sums, routed.log_z);
        EXPECT_EQ(routed.choice, at.choice) << "the step changes the choice";
        return dot(routed.weights, p.dweights) +
               static_cast<double>(p.scales.balance) * dot(routed.score_sums, at.load) +
               static_cast<double>(p.scales.z) * dot(routed.log_z, routed.log_z);
    };
    Matrix dlogits(logits.rows(), logits.cols(), DType::fp64);
    reference::router_backward(ctx, logits, at.log_z, at.choice, p.dweights, at.load, p.options,
                               p.scales, dlogits);
    expect_close(dlogits, numeric_gradient(logits, loss),
                 [](int64_t, int64_t) { return kDifferenceBound; });
}

INSTANTIATE_TEST_SUITE_P(Families, RouterOfCase, testing::ValuesIn(router_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(Router, WeightsOfMixtralAreASoftmaxOfTheChosenLogits) {
    Context ctx({.poll = {}});
    const Matrix logits = matrix_of({{0.5, 2, -1, 1}});
    const Routed routed = route(ctx, logits, {}, {.top_k = 2, .normalize = true});
    EXPECT_EQ(routed.choice, (std::vector<int32_t>{1, 3}));
    EXPECT_NEAR(routed.weights.get(0, 0), 1 / (1 + std::exp(-1.0)), 1e-6);
    EXPECT_NEAR(routed.weights.get(0, 1), 1 / (1 + std::exp(1.0)), 1e-6);
}

TEST(Router, ChoosesInsideOfTheGroupsWithTheBestPairs) {
    Context ctx({.poll = {}});
    // Group 0 has the best expert but a poor second; groups 1 and 3 have the best pairs.
    const Matrix logits = matrix_of({{4, -9, -9, 2, 1.5, 0, 0, 0, -1, 1.9, -5, 1.8}});
    const RouterOptions options{
        .top_k = 3, .score = RouterScore::sigmoid, .groups = 4, .top_groups = 2};
    EXPECT_EQ(route(ctx, logits, {}, options).choice, (std::vector<int32_t>{3, 9, 11}));
}

TEST(Router, BiasChoosesButDoesNotWeigh) {
    Context ctx({.poll = {}});
    const Matrix logits = matrix_of({{0, 1, 2, 3}}), bias = matrix_of({{5, 0, 4, 0}});
    const Routed routed =
        route(ctx, logits, bias, {.top_k = 2, .score = RouterScore::sigmoid, .scaling = 3});
    EXPECT_EQ(routed.choice, (std::vector<int32_t>{0, 2}));
    EXPECT_NEAR(routed.weights.get(0, 0), 3 * 0.5, 1e-6);
    EXPECT_NEAR(routed.weights.get(0, 1), 3 / (1 + std::exp(-2.0)), 1e-6);
}

TEST(Router, OfEqualValuesTakesTheSmallerIndex) {
    Context ctx({.poll = {}});
    const Matrix equal = matrix_of({{1, 1, 1, 1, 1, 1, 1, 1}, {0, 2, 2, 0, 2, 2, 0, 2}});
    for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
        EXPECT_EQ(route(ctx, equal, {}, {.top_k = 3, .score = score}).choice,
                  (std::vector<int32_t>{0, 1, 2, 1, 2, 4}));
        EXPECT_EQ(route(ctx, equal, {}, {.top_k = 3, .score = score, .groups = 4, .top_groups = 2})
                      .choice,
                  (std::vector<int32_t>{0, 1, 2, 1, 4, 5}))
            << "pairs (0, 2), (2, 0), (2, 2), (0, 2): the third group, then the first";
        const Matrix zero = matrix_of({{0, 0, 0, 0, 0, 0, 0, 0}});
        EXPECT_EQ(route(ctx, equal, zero, {.top_k = 3, .score = score}).choice,
                  (std::vector<int32_t>{0, 1, 2, 1, 2, 4}));
    }
}

TEST(Router, OrdersLogitsWhoseScoresAreEqualInFp32) {
    Context ctx({.poll = {}});
    const Matrix far = matrix_of({{40, 41, 42, -300, -200, 39}});
    EXPECT_EQ(route(ctx, far, {}, {.top_k = 4, .score = RouterScore::sigmoid}).choice,
              (std::vector<int32_t>{2, 1, 0, 5}));
    EXPECT_EQ(route(ctx, far, {}, {.top_k = 6}).choice, (std::vector<int32_t>{2, 1, 0, 5, 4, 3}));
}

TEST(Router, KeepsWeightsAndGradientsFiniteForHugeLogits) {
    Context ctx({.poll = {}});
    const Matrix huge = matrix_of({{1e4, -1e4, 0, 3e4}, {-1e4, -2e4, -3e4, -1e4}});
    const Matrix dweights = matrix_of({{1, -1}, {1, -1}});
    for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
        const RouterOptions options{.top_k = 2, .score = score, .normalize = true};
        const Routed routed = route(ctx, huge, {}, options);
        Matrix dlogits(2, 4, DType::fp32);
        host::router_backward(ctx, huge, routed.log_z, routed.choice, dweights, routed.load,
                              options, {.balance = 1, .z = 1e-3F}, dlogits);
        for (int64_t n = 0; n < 2; ++n) {
            for (int64_t j = 0; j < 2; ++j) EXPECT_TRUE(std::isfinite(routed.weights.get(n, j)));
            for (int64_t e = 0; e < 4; ++e) EXPECT_TRUE(std::isfinite(dlogits.get(n, e)));
        }
    }
}

TEST(Router, ChoosesDifferentExpertsThatExistOfNaN) {
    Context ctx({.poll = {}});
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const Matrix logits = matrix_of({{nan, nan, nan, nan, nan, nan}, {1, nan, 2, nan, 3, nan}});
    for (const int64_t top_groups : {3, 2}) {
        const Routed routed =
            route(ctx, logits, {}, {.top_k = 4, .groups = 3, .top_groups = top_groups});
        for (size_t n = 0; n < 2; ++n) {
            const auto first = routed.choice.begin() + static_cast<std::ptrdiff_t>(4 * n);
            const std::set<int32_t> chosen(first, first + 4);
            EXPECT_EQ(chosen.size(), 4U);
            EXPECT_GE(*chosen.begin(), 0);
            EXPECT_LE(*chosen.rbegin(), 5);
        }
    }
}

TEST(Router, RefusesWrongArguments) {
    Context ctx({.poll = {}});
    const Matrix logits = Matrix::random(3, 6, DType::fp32, 1);
    const auto forward = [&](const RouterOptions& options) {
        return route(ctx, logits, {}, options);
    };
    EXPECT_NO_THROW(forward({.top_k = 4, .groups = 3, .top_groups = 2}));
    for (const RouterOptions& wrong : {RouterOptions{.top_k = 0},
                                       {.top_k = 7},
                                       {.top_k = 1, .groups = 4},
                                       {.top_k = 1, .groups = 0},
                                       {.top_k = 1, .groups = 3, .top_groups = 4},
                                       {.top_k = 1, .groups = 3, .top_groups = 0},
                                       {.top_k = 3, .groups = 3, .top_groups = 1}}) {
        EXPECT_THROW(forward(wrong), UsageError);
    }
    EXPECT_THROW(route(ctx, logits, Matrix(1, 5, DType::fp32), {.top_k = 2}), UsageError);
    EXPECT_THROW(route(ctx, logits.as(DType::bf16), {}, {.top_k = 2}), UsageError);
    Routed routed(3, 6, 2, DType::fp32);
    routed.choice.pop_back();
    EXPECT_THROW(host::router_forward(ctx, logits, {}, {.top_k = 2}, routed.choice, routed.weights,
                                      routed.load, routed.score_sums, routed.log_z),
                 UsageError);
}

}  // namespace
}  // namespace vocabpipe::kernels::test

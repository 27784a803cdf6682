// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/router_cases.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

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

template <typename... Others>
class RouterTest : public OperatorTest<Others...> {
protected:
    using OperatorTest<Others...>::up;
    using OperatorTest<Others...>::ops;

    /// `bias` without rows: none.
    [[nodiscard]] Routed route(Context& ctx, const Matrix& logits, const Matrix& bias,
                               const RouterOptions& options) const {
        Routed result(logits.rows(), logits.cols(), std::max<int64_t>(options.top_k, 0),
                      DType::fp32);
        const Uploaded in = up(logits), added = up(bias), weights = up(result.weights);
        const Uploaded load = up(result.load), sums = up(result.score_sums), z = up(result.log_z);
        const auto choice = up(result.choice);
        ops().router_forward(ctx, in, bias.rows() > 0 ? ConstTensor(added) : ConstTensor{}, options,
                             choice, weights, load, sums, z);
        result.choice = choice.download();
        result.weights = weights.download();
        result.load = load.download();
        result.score_sums = sums.download();
        result.log_z = z.download();
        return result;
    }
    [[nodiscard]] Matrix gradient(Context& ctx, const Matrix& logits, const Routed& routed,
                                  const Matrix& dweights, const RouterOptions& options,
                                  const RouterLossScales& scales) const {
        const Uploaded dlogits = this->poison(logits.rows(), logits.cols(), DType::fp32);
        ops().router_backward(ctx, up(logits), up(routed.log_z), up(routed.choice), up(dweights),
                              up(routed.load), options, scales, dlogits);
        return dlogits.download();
    }
    const Matrix none{0, 1, DType::fp32};
};

class RouterFamilies : public RouterTest<RouterCase> {
protected:
    [[nodiscard]] Matrix bias_of(const RouterProblem& p) const {
        return p.with_bias ? p.bias : none;
    }
};

TEST_P(RouterFamilies, AgreeWithTheReferenceInBothDirections) {
    const RouterProblem p(parameter<1>());
    const Routed exact = p.exact(host);
    const Routed actual = route(ctx(), p.logits, bias_of(p), p.options);
    expect_routed(actual, exact);
    expect_gradient(gradient(ctx(), p.logits, actual, p.dweights, p.options, p.scales), p, exact,
                    host);
}

TEST_P(RouterFamilies, BitsAreTheSameForAnyThreads) {
    RouterCase large = parameter<1>();
    large.tokens = 40000 / large.experts;  // enough to wake a team
    const RouterProblem p(large);
    expect_same_bits_with_any_threads([&](Context& ctx) {
        const Routed routed = route(ctx, p.logits, bias_of(p), p.options);
        Matrix choice(1, std::ssize(routed.choice), DType::fp32);
        for (int64_t i = 0; i < choice.cols(); ++i) {
            choice.set(0, i, routed.choice[static_cast<size_t>(i)]);
        }
        return std::vector{
            choice,       routed.weights,
            routed.load,  routed.score_sums,
            routed.log_z, gradient(ctx, p.logits, routed, p.dweights, p.options, p.scales)};
    });
}

INSTANTIATE_TEST_SUITE_P(Devices, RouterFamilies,
                         testing::Combine(testing::ValuesIn(devices_under_test()),
                                          testing::ValuesIn(router_cases())),
                         kNames);

using Router = RouterTest<>;

TEST_P(Router, WeightsOfMixtralAreASoftmaxOfTheChosenLogits) {
    const Routed routed =
        route(ctx(), matrix_of({{0.5, 2, -1, 1}}), none, {.top_k = 2, .normalize = true});
    EXPECT_EQ(routed.choice, (std::vector<int32_t>{1, 3}));
    EXPECT_NEAR(routed.weights.get(0, 0), 1 / (1 + std::exp(-1.0)), 1e-6);
    EXPECT_NEAR(routed.weights.get(0, 1), 1 / (1 + std::exp(1.0)), 1e-6);
}

TEST_P(Router, ChoosesInsideOfTheGroupsWithTheBestPairs) {
    // Group 0 has the best expert but a poor second; groups 1 and 3 have the best pairs.
    const Matrix logits = matrix_of({{4, -9, -9, 2, 1.5, 0, 0, 0, -1, 1.9, -5, 1.8}});
    const RouterOptions options{
        .top_k = 3, .score = RouterScore::sigmoid, .groups = 4, .top_groups = 2};
    EXPECT_EQ(route(ctx(), logits, none, options).choice, (std::vector<int32_t>{3, 9, 11}));
}

TEST_P(Router, BiasChoosesButDoesNotWeigh) {
    const Routed routed = route(ctx(), matrix_of({{0, 1, 2, 3}}), matrix_of({{5, 0, 4, 0}}),
                                {.top_k = 2, .score = RouterScore::sigmoid, .scaling = 3});
    EXPECT_EQ(routed.choice, (std::vector<int32_t>{0, 2}));
    EXPECT_NEAR(routed.weights.get(0, 0), 3 * 0.5, 1e-6);
    EXPECT_NEAR(routed.weights.get(0, 1), 3 / (1 + std::exp(-2.0)), 1e-6);
}

TEST_P(Router, OfEqualValuesTakesTheSmallerIndex) {
    const Matrix equal = matrix_of({{1, 1, 1, 1, 1, 1, 1, 1}, {0, 2, 2, 0, 2, 2, 0, 2}});
    for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
        EXPECT_EQ(route(ctx(), equal, none, {.top_k = 3, .score = score}).choice,
                  (std::vector<int32_t>{0, 1, 2, 1, 2, 4}));
        EXPECT_EQ(
            route(ctx(), equal, none, {.top_k = 3, .score = score, .groups = 4, .top_groups = 2})
                .choice,
            (std::vector<int32_t>{0, 1, 2, 1, 4, 5}))
            << "pairs (0, 2), (2, 0), (2, 2), (0, 2): the third group, then the first";
        const Matrix zero = matrix_of({{0, 0, 0, 0, 0, 0, 0, 0}});
        EXPECT_EQ(route(ctx(), equal, zero, {.top_k = 3, .score = score}).choice,
                  (std::vector<int32_t>{0, 1, 2, 1, 2, 4}));
    }
    const Matrix ones = Matrix(3, 40, DType::fp32).mapped(DType::fp32, [](double) { return 1.0; });
    for (const auto& [groups, top_groups] : {std::pair{1, 1}, {8, 2}}) {
        const Routed routed =
            route(ctx(), ones, none, {.top_k = 6, .groups = groups, .top_groups = top_groups});
        for (size_t i = 0; i < routed.choice.size(); ++i) {
            EXPECT_EQ(routed.choice[i], static_cast<int32_t>(i % 6));
        }
    }
}

TEST_P(Router, OrdersLogitsWhoseScoresAreEqualInFp32) {
    const Matrix far = matrix_of({{40, 41, 42, -300, -200, 39}});
    EXPECT_EQ(route(ctx(), far, none, {.top_k = 4, .score = RouterScore::sigmoid}).choice,
              (std::vector<int32_t>{2, 1, 0, 5}));
    EXPECT_EQ(route(ctx(), far, none, {.top_k = 6}).choice,
              (std::vector<int32_t>{2, 1, 0, 5, 4, 3}));
}

TEST_P(Router, KeepsWeightsAndGradientsFiniteForHugeLogits) {
    const Matrix huge = matrix_of({{1e4, -1e4, 0, 3e4}, {-1e4, -2e4, -3e4, -1e4}});
    const Matrix dweights = matrix_of({{1, -1}, {1, -1}});
    for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid}) {
        const RouterOptions options{.top_k = 2, .score = score, .normalize = true};
        const Routed routed = route(ctx(), huge, none, options);
        const Matrix dlogits =
            gradient(ctx(), huge, routed, dweights, options, {.balance = 1, .z = 1e-3F});
        for (int64_t n = 0; n < 2; ++n) {
            for (int64_t j = 0; j < 2; ++j) EXPECT_TRUE(std::isfinite(routed.weights.get(n, j)));
            for (int64_t e = 0; e < 4; ++e) EXPECT_TRUE(std::isfinite(dlogits.get(n, e)));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, Router, testing::Combine(testing::ValuesIn(devices_under_test())),
                         kNames);

using RouterPromises = RouterTest<>;

TEST_P(RouterPromises, OfNaNDifferentExpertsThatExistAreChosen) {
    const Matrix few = matrix_of({{NAN, NAN, NAN, NAN, NAN, NAN}, {1, NAN, 2, NAN, 3, NAN}});
    const Matrix many(2, 40, DType::fp32);
    const auto check = [&](const Matrix& logits, const RouterOptions& options) {
        const Routed routed = route(ctx(), logits, none, options);
        for (int64_t n = 0; n < 2; ++n) {
            const auto first = routed.choice.begin() + n * options.top_k;
            const std::set<int32_t> chosen(first, first + options.top_k);
            EXPECT_EQ(std::ssize(chosen), options.top_k);
            EXPECT_GE(*chosen.begin(), 0);
            EXPECT_LT(*chosen.rbegin(), logits.cols());
        }
    };
    check(few, {.top_k = 4, .groups = 3, .top_groups = 3});
    check(few, {.top_k = 4, .groups = 3, .top_groups = 2});
    check(many, {.top_k = 6, .groups = 8, .top_groups = 3});
}

TEST_P(RouterPromises, ArgumentsFitTogether) {
    const Matrix logits = Matrix::random(3, 6, DType::fp32, 1);
    const auto forward = [&](const RouterOptions& options) {
        return route(ctx(), logits, none, options);
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
    EXPECT_THROW(route(ctx(), logits, Matrix(1, 5, DType::fp32), {.top_k = 2}), UsageError);
    EXPECT_THROW(route(ctx(), logits.as(DType::bf16), none, {.top_k = 2}), UsageError);
    const Uploaded weights = poison(3, 2, DType::fp32), load = poison(1, 6, DType::fp32);
    const Uploaded sums = poison(1, 6, DType::fp32), log_z = poison(3, 1, DType::fp32);
    const auto few = up(std::vector<int32_t>(5));
    EXPECT_THROW(
        ops().router_forward(ctx(), up(logits), {}, {.top_k = 2}, few, weights, load, sums, log_z),
        UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, RouterPromises,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

class ReferenceRouter : public testing::TestWithParam<RouterCase> {};

TEST_P(ReferenceRouter, GradientIsThatOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
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

INSTANTIATE_TEST_SUITE_P(Families, ReferenceRouter, testing::ValuesIn(router_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace vocabpipe::kernels::test

// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <gtest/gtest.h>

#include "kernels/reference/operators.hpp"
#include "tests/kernels/matrix.hpp"
#include "tests/kernels/rms_norm_oracle.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct RmsNormSizes {
    int64_t n, h;
};
const RmsNormSizes kRmsNormSizes[] = {{1, 1}, {3, 2}, {5, 17}, {17, 129}, {2, 768}};
const RmsNormOptions kRmsNormOptions[] = {{}, {.epsilon = 1e-2F, .weight_offset = 1}};

class RmsNormOfType : public testing::TestWithParam<DType> {
protected:
    Context ctx{{.threads = 1, .poll = {}}};
};

TEST_P(RmsNormOfType, ForwardAgreesWithTheReference) {
    const DType type = GetParam();
    for (const RmsNormSizes& sizes : kRmsNormSizes) {
        const int64_t n = sizes.n, h = sizes.h;
        for (const RmsNormOptions& options : kRmsNormOptions) {
            for (const bool with_residual : {false, true}) {
                SCOPED_TRACE(testing::Message() << n << " x " << h << " " << with_residual);
                const auto x = Matrix::random(n, h, type, 1, -0.5, 1.5);
                const auto gamma = Matrix::random(1, h, type, 2, -0.5, 1.5);
                const auto residual = Matrix::random(n, h, type, 3);
                const auto some = with_residual ? residual.view() : ConstTensor{};
                Matrix y(n, h, type), statistics(n, 1, DType::fp32);
                Matrix exact(n, h, DType::fp64), exact_statistics(n, 1, DType::fp64);
                host::rms_norm_forward(ctx, x, gamma, options, some, y, statistics);
                reference::rms_norm_forward(ctx, x, gamma, options, some, exact, exact_statistics);
                const RmsNormErrors errors{x, gamma, options, exact_statistics, type};
                expect_close(y, exact, errors.of_forward(exact));
                expect_close(statistics, exact_statistics, errors.of_statistics());

                if (!with_residual) continue;
                auto aliased = residual.as(type);
                host::rms_norm_forward(ctx, x, gamma, options, aliased, aliased, statistics);
                EXPECT_TRUE(aliased.same_bits(y));
            }
        }
    }
}

TEST_P(RmsNormOfType, InputGradientAgreesWithTheReference) {
    const DType type = GetParam();
    for (const RmsNormSizes& sizes : kRmsNormSizes) {
        const int64_t n = sizes.n, h = sizes.h;
        for (const RmsNormOptions& options : kRmsNormOptions) {
            for (const bool with_residual : {false, true}) {
                SCOPED_TRACE(testing::Message() << n << " x " << h << " " << with_residual);
                const auto x = Matrix::random(n, h, type, 1, -0.5, 1.5);
                const auto dy = Matrix::random(n, h, type, 2);
                const auto gamma = Matrix::random(1, h, type, 3, -0.5, 1.5);
                const auto residual = Matrix::random(n, h, type, 4);
                const auto some = with_residual ? residual.view() : ConstTensor{};
                Matrix unused(n, h, DType::fp64), statistics(n, 1, DType::fp32);
                reference::rms_norm_forward(ctx, x, gamma, options, {}, unused, statistics);
                Matrix dx(n, h, type), exact(n, h, DType::fp64);
                host::rms_norm_backward_input(ctx, dy, x, gamma, options, statistics, some, dx);
                reference::rms_norm_backward_input(ctx, dy, x, gamma, options, statistics, some,
                                                   exact);
                const RmsNormErrors errors{x, gamma, options, statistics, type};
                expect_close(dx, exact, errors.of_backward_input(dy, exact));

                auto over_dy = dy.as(type);
                host::rms_norm_backward_input(ctx, over_dy, x, gamma, options, statistics, some,
                                              over_dy);
                EXPECT_TRUE(over_dy.same_bits(dx));
                if (!with_residual) continue;
                auto over_residual = residual.as(type);
                host::rms_norm_backward_input(ctx, dy, x, gamma, options, statistics, over_residual,
                                              over_residual);
                EXPECT_TRUE(over_residual.same_bits(dx));
            }
        }
    }
}

TEST_P(RmsNormOfType, WeightGradientAgreesWithTheReferenceAndAccumulates) {
    const DType type = GetParam();
    for (const RmsNormSizes& sizes : kRmsNormSizes) {
        const int64_t n = sizes.n, h = sizes.h;
        for (const bool accumulate : {false, true}) {
            const auto x = Matrix::random(n, h, type, 1, -0.5, 1.5);
            const auto dy = Matrix::random(n, h, type, 2);
            const auto statistics = Matrix::random(n, 1, DType::fp32, 3, 0.5, 2.0);
            auto dgamma =
                accumulate ? Matrix::random(1, h, DType::fp32, 4) : Matrix(1, h, DType::fp32);
            auto exact = dgamma.as(DType::fp64), magnitude = dgamma.magnitude();
            host::rms_norm_backward_weight(ctx, dy, x, statistics, dgamma, accumulate);
            reference::rms_norm_backward_weight(ctx, dy, x, statistics, exact, accumulate);
            reference::rms_norm_backward_weight(ctx, dy.magnitude(), x.magnitude(), statistics,
                                                magnitude, accumulate);
            // n + 1 terms; two roundings inside of one
            expect_close(dgamma, exact, [&](int64_t, int64_t col) {
                return static_cast<double>(n + 4) * kEps32 * magnitude.get(0, col);
            });
        }
    }
}

// Two tensor ranks have some of the columns each.
TEST_P(RmsNormOfType, OfSomeColumnsAgreesWithTheReferenceOfAll) {
    const DType type = GetParam();
    const RmsNormOptions options{.epsilon = 1e-2F, .weight_offset = 1};
    for (const RmsNormSizes& sizes : kRmsNormSizes) {
        const int64_t n = sizes.n, h = sizes.h + 1, cut = h / 2;
        SCOPED_TRACE(testing::Message() << n << " x " << h);
        const auto x = Matrix::random(n, h, type, 1, -0.5, 1.5);
        const auto dy = Matrix::random(n, h, type, 2);
        const auto gamma = Matrix::random(1, h, type, 3, -0.5, 1.5);
        Matrix exact(n, h, DType::fp64), exact_dx(n, h, DType::fp64), all(n, 1, DType::fp32);
        reference::rms_norm_forward(ctx, x, gamma, options, {}, exact, all);
        reference::rms_norm_backward_input(ctx, dy, x, gamma, options, all, {}, exact_dx);
        Matrix y(n, h, type), dx(n, h, type), statistics(n, 1, DType::fp32);
        const RowRange parts[] = {{0, cut}, {cut, h}};
        const auto columns = [](auto tensor, RowRange part) {
            return tensor.column_range(part.first, part.size());
        };
        const auto sums = [&](auto&& of_part) {
            Matrix own(1, n, DType::fp32), sum = own.mapped(DType::fp32, [](double) { return 0; });
            for (const RowRange part : parts) {
                of_part(part, own);
                for (int64_t i = 0; i < n; ++i) sum.set(0, i, sum.get(0, i) + own.get(0, i));
            }
            return sum;
        };
        const Matrix squares = sums([&](RowRange part, Tensor own) {
            host::rms_norm_sums(ctx, {}, columns(x.view(), part), {}, options, {}, own);
        });
        const Matrix gz = sums([&](RowRange part, Tensor own) {
            host::rms_norm_sums(ctx, columns(dy.view(), part), columns(x.view(), part),
                                columns(gamma.view(), part), options, all, own);
        });
        RmsNormOptions of_part = options;
        of_part.columns = h;
        of_part.sums = squares.view();
        for (const RowRange part : parts) {
            host::rms_norm_forward(ctx, columns(x.view(), part), columns(gamma.view(), part),
                                   of_part, {}, columns(Tensor(y), part), statistics);
        }
        of_part.sums = gz.view();
        for (const RowRange part : parts) {
            host::rms_norm_backward_input(ctx, columns(dy.view(), part), columns(x.view(), part),
                                          columns(gamma.view(), part), of_part, all, {},
                                          columns(Tensor(dx), part));
        }
        const RmsNormErrors errors{x, gamma, options, all, type};
        expect_close(statistics, all.as(DType::fp64), errors.of_statistics());
        expect_close(y, exact, errors.of_forward(exact));
        expect_close(dx, exact_dx, errors.of_backward_input(dy, exact_dx));
    }
}

TEST_P(RmsNormOfType, BitsAreTheSameForOneAndTwoThreads) {
    const DType type = GetParam();
    Context two({.threads = 2, .poll = {}});
    const int64_t n = 131, h = 515;
    const auto x = Matrix::random(n, h, type, 1);
    const auto dy = Matrix::random(n, h, type, 2);
    const auto gamma = Matrix::random(1, h, type, 3);
    std::vector<Matrix> results;
    for (Context* context : {&ctx, &two}) {
        Matrix y(n, h, type), statistics(n, 1, DType::fp32), dx(n, h, type);
        Matrix dgamma(1, h, DType::fp32);
        host::rms_norm_forward(*context, x, gamma, {}, dy, y, statistics);
        host::rms_norm_backward_input(*context, dy, x, gamma, {}, statistics, {}, dx);
        host::rms_norm_backward_weight(*context, dy, x, statistics, dgamma, false);
        for (const Matrix& result : {y, statistics, dx, dgamma}) results.push_back(result);
    }
    for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(results[i].same_bits(results[i + 4])) << i;
}

INSTANTIATE_TEST_SUITE_P(Types, RmsNormOfType, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

TEST(RmsNorm, RefusesStatisticsOfAnotherShape) {
    Context ctx({.threads = 1, .poll = {}});
    Matrix x(2, 4, DType::fp32), y(2, 4, DType::fp32), gamma(1, 4, DType::fp32);
    Matrix statistics(2, 2, DType::fp32);
    EXPECT_THROW(host::rms_norm_forward(ctx, x, gamma, {}, {}, y, statistics), UsageError);
}

TEST(ReferenceRmsNorm, GradientsAreThoseOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    const int64_t n = 4, h = 6;
    const RmsNormOptions options{.epsilon = 0.1F, .weight_offset = 1};
    auto x = Matrix::random(n, h, DType::fp64, 1);
    auto gamma = Matrix::random(1, h, DType::fp64, 2);
    auto around = Matrix::random(n, h, DType::fp64, 3);
    const auto dy = Matrix::random(n, h, DType::fp64, 4);
    const auto residual = Matrix::random(n, h, DType::fp64, 5);
    const auto loss = [&] {
        Matrix y(n, h, DType::fp64), own(n, 1, DType::fp64);
        reference::rms_norm_forward(ctx, x, gamma, options, around, y, own);
        return dot(y, dy) + dot(x, residual);
    };
    Matrix y(n, h, DType::fp64), statistics(n, 1, DType::fp64), dx(n, h, DType::fp64);
    Matrix dgamma(1, h, DType::fp64);
    reference::rms_norm_forward(ctx, x, gamma, options, around, y, statistics);
    reference::rms_norm_backward_input(ctx, dy, x, gamma, options, statistics, residual, dx);
    reference::rms_norm_backward_weight(ctx, dy, x, statistics, dgamma, false);
    const auto bound = [](int64_t, int64_t) { return kDifferenceBound; };
    expect_close(dx, numeric_gradient(x, loss), bound);
    expect_close(dgamma, numeric_gradient(gamma, loss), bound);
    expect_close(dy, numeric_gradient(around, loss), bound);
}

TEST(ReferenceRmsNorm, OfSomeColumnsTakesTheMeansFromTheSumsOfAll) {
    Context ctx({.threads = 1, .poll = {}});
    const auto matrix = [](std::initializer_list<double> values) {
        Matrix filled(2, 2, DType::fp64);
        for (int64_t i = 0; i < 4; ++i) filled.set(i / 2, i % 2, values.begin()[i]);
        return filled;
    };
    const Matrix x = matrix({1, 2, 3, 4}), dy = matrix({1, 1, 2, 0});
    Matrix gamma(1, 2, DType::fp64), sums(1, 2, DType::fp64), statistics(2, 1, DType::fp64);
    for (int64_t i = 0; i < 2; ++i) gamma.set(0, i, 1);
    Matrix y(2, 2, DType::fp64), dx(2, 2, DType::fp64);
    // The mean squares of all 8 columns are 4 and 16, so z is x / 2 and x / 4.
    sums.set(0, 0, 32);
    sums.set(0, 1, 128);
    RmsNormOptions options{.epsilon = 0, .columns = 8};
    options.sums = sums.view();
    reference::rms_norm_forward(ctx, x, gamma, options, {}, y, statistics);
    const auto exactly = [](int64_t, int64_t) { return 0.0; };
    expect_close(y, matrix({0.5, 1, 0.75, 1}), exactly);
    EXPECT_EQ(statistics.get(0, 0), 0.5);
    EXPECT_EQ(statistics.get(1, 0), 0.25);
    // The means of g z are 2 and 4: dx = (g - z mean) inverse_rms.
    sums.set(0, 0, 16);
    sums.set(0, 1, 32);
    reference::rms_norm_backward_input(ctx, dy, x, gamma, options, statistics, {}, dx);
    expect_close(dx, matrix({0, -0.5, -0.25, -1}), exactly);
}

}  // namespace
}  // namespace vocabpipe::kernels::test

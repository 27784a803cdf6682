// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <gtest/gtest.h>

#include "kernels/reference/operators.hpp"
#include "tests/kernels/matrix.hpp"

namespace vocabpipe::kernels::test {
namespace {

constexpr float kEpsilon = 1e-5F;
struct LayerNormSizes {
    int64_t n, h;
};
const LayerNormSizes kLayerNormSizes[] = {{1, 1}, {3, 2}, {5, 17}, {17, 129}, {2, 768}};

class LayerNormOfType : public testing::TestWithParam<DType> {
protected:
    Context ctx{{.threads = 1, .poll = {}}};
};

// With |x| <= 1.5 the mean of h terms errs by at most 2 h eps, which z feels multiplied by
// inverse_std; the relative error of inverse_std is at most (h + 8) eps plus that of the
// differences x - mean, again 2 h eps * inverse_std. |z| <= sqrt(h). All together below (4 h + 16)
// eps (1 + |z|) (1 + inverse_std), times |gamma|.
double z_error(double h, double z, double inverse_std) {
    return (4 * h + 16) * kEps32 * (1 + std::abs(z)) * (1 + inverse_std);
}

TEST_P(LayerNormOfType, ForwardAgreesWithTheReference) {
    const DType type = GetParam();
    for (const LayerNormSizes& sizes : kLayerNormSizes) {
        const int64_t n = sizes.n, h = sizes.h;
        SCOPED_TRACE(testing::Message() << n << " x " << h);
        const auto x = Matrix::random(n, h, type, 1, -0.5, 1.5);
        const auto gamma = Matrix::random(1, h, type, 2, 0.5, 1.5);
        const auto beta = Matrix::random(1, h, type, 3);
        Matrix y(n, h, type), statistics(n, 2, DType::fp32);
        Matrix exact(n, h, DType::fp64), exact_statistics(n, 2, DType::fp64);
        host::layer_norm_forward(ctx, x, gamma, beta, kEpsilon, y, statistics);
        reference::layer_norm_forward(ctx, x, gamma, beta, kEpsilon, exact, exact_statistics);
        const auto count = static_cast<double>(h);
        expect_close(y, exact, [&](int64_t row, int64_t col) {
            const double inverse_std = exact_statistics.get(row, 1);
            const double z = (x.get(row, col) - exact_statistics.get(row, 0)) * inverse_std;
            return gamma.get(0, col) * z_error(count, z, inverse_std) + 4 * kEps32 +
                   unit_roundoff(type) * std::abs(exact.get(row, col)) * 1.01;
        });
        expect_close(statistics, exact_statistics, [&](int64_t row, int64_t col) {
            const double inverse_std = exact_statistics.get(row, 1);
            return col == 0 ? 2 * (count + 1) * kEps32
                            : inverse_std * z_error(count, 0.0, inverse_std);
        });
    }
}

TEST_P(LayerNormOfType, InputGradientAgreesWithTheReference) {
    const DType type = GetParam();
    for (const LayerNormSizes& sizes : kLayerNormSizes) {
        const int64_t n = sizes.n, h = sizes.h;
        for (const bool with_residual : {false, true}) {
            SCOPED_TRACE(testing::Message() << n << " x " << h << " " << with_residual);
            const auto x = Matrix::random(n, h, type, 1, -0.5, 1.5);
            const auto dy = Matrix::random(n, h, type, 2);
            const auto gamma = Matrix::random(1, h, type, 3, 0.5, 1.5);
            const auto residual = Matrix::random(n, h, type, 4);
            const auto some = with_residual ? residual.view() : ConstTensor{};
            Matrix unused(n, h, DType::fp64), statistics(n, 2, DType::fp32);
            reference::layer_norm_forward(ctx, x, gamma, gamma, kEpsilon, unused, statistics);
            Matrix dx(n, h, type), exact(n, h, DType::fp64);
            host::layer_norm_backward_input(ctx, dy, x, gamma, statistics, some, dx);
            reference::layer_norm_backward_input(ctx, dy, x, gamma, statistics, some, exact);
            // The statistics are given. |g| <= 1.5; both means err by (h + 4) eps times the mean of
            // magnitudes, the second one times |z| once more.
            expect_close(dx, exact, [&](int64_t row, int64_t col) {
                const double inverse_std = statistics.get(row, 1);
                double mean_z = 0.0;
                for (int64_t i = 0; i < h; ++i) {
                    mean_z += std::abs(x.get(row, i) - statistics.get(row, 0)) * inverse_std /
                              static_cast<double>(h);
                }
                const double z = std::abs(x.get(row, col) - statistics.get(row, 0)) * inverse_std;
                return static_cast<double>(h + 8) * kEps32 * inverse_std * 1.5 *
                           (2 + 2 * z * mean_z) +
                       2 * kEps32 + unit_roundoff(type) * std::abs(exact.get(row, col)) * 1.01;
            });

            auto aliased = residual.as(type);
            if (with_residual) {
                host::layer_norm_backward_input(ctx, dy, x, gamma, statistics, aliased, aliased);
                EXPECT_TRUE(aliased.same_bits(dx));
            }
        }
    }
}

TEST_P(LayerNormOfType, WeightGradientsAgreeWithTheReferenceAndAccumulate) {
    const DType type = GetParam();
    for (const LayerNormSizes& sizes : kLayerNormSizes) {
        const int64_t n = sizes.n, h = sizes.h;
        for (const bool accumulate : {false, true}) {
            const auto x = Matrix::random(n, h, type, 1, -0.5, 1.5);
            const auto dy = Matrix::random(n, h, type, 2);
            Matrix unused(n, h, DType::fp64), statistics(n, 2, DType::fp32);
            reference::layer_norm_forward(ctx, x, x.view().row_range(0, 1),
                                          x.view().row_range(0, 1), kEpsilon, unused, statistics);
            auto dgamma =
                accumulate ? Matrix::random(1, h, DType::fp32, 3) : Matrix(1, h, DType::fp32);
            auto dbeta =
                accumulate ? Matrix::random(1, h, DType::fp32, 4) : Matrix(1, h, DType::fp32);
            auto exact_gamma = dgamma.as(DType::fp64), exact_beta = dbeta.as(DType::fp64);
            host::layer_norm_backward_weight(ctx, dy, x, statistics, dgamma, dbeta, accumulate);
            reference::layer_norm_backward_weight(ctx, dy, x, statistics, exact_gamma, exact_beta,
                                                  accumulate);
            // n + 1 terms of magnitude at most sqrt(h) and 1; four roundings inside of a term.
            const auto terms = static_cast<double>(n + 1);
            expect_close(dgamma, exact_gamma, [&](int64_t, int64_t) {
                return terms * (terms + 4) * kEps32 * std::sqrt(static_cast<double>(h) + 1) * 2;
            });
            expect_close(dbeta, exact_beta,
                         [&](int64_t, int64_t) { return terms * terms * kEps32; });
        }
    }
}

TEST_P(LayerNormOfType, BitsAreTheSameForOneAndTwoThreads) {
    const DType type = GetParam();
    Context two({.threads = 2, .poll = {}});
    const int64_t n = 131, h = 515;
    const auto x = Matrix::random(n, h, type, 1);
    const auto dy = Matrix::random(n, h, type, 2);
    const auto gamma = Matrix::random(1, h, type, 3);
    std::vector<Matrix> results;
    for (Context* context : {&ctx, &two}) {
        Matrix y(n, h, type), statistics(n, 2, DType::fp32), dx(n, h, type);
        Matrix dgamma(1, h, DType::fp32), dbeta(1, h, DType::fp32);
        host::layer_norm_forward(*context, x, gamma, gamma, kEpsilon, y, statistics);
        host::layer_norm_backward_input(*context, dy, x, gamma, statistics, {}, dx);
        host::layer_norm_backward_weight(*context, dy, x, statistics, dgamma, dbeta, false);
        for (const Matrix& result : {y, statistics, dx, dgamma, dbeta}) results.push_back(result);
    }
    for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(results[i].same_bits(results[i + 5])) << i;
}

INSTANTIATE_TEST_SUITE_P(Types, LayerNormOfType, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

TEST(ReferenceLayerNorm, GradientsAreThoseOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    const int64_t n = 4, h = 6;
    auto x = Matrix::random(n, h, DType::fp64, 1);
    auto gamma = Matrix::random(1, h, DType::fp64, 2);
    auto beta = Matrix::random(1, h, DType::fp64, 3);
    const auto dy = Matrix::random(n, h, DType::fp64, 4);
    const auto residual = Matrix::random(n, h, DType::fp64, 5);
    Matrix statistics(n, 2, DType::fp64);
    const auto loss = [&] {
        Matrix y(n, h, DType::fp64), own(n, 2, DType::fp64);
        reference::layer_norm_forward(ctx, x, gamma, beta, kEpsilon, y, own);
        return dot(y, dy) + dot(x, residual);
    };
    Matrix y(n, h, DType::fp64), dx(n, h, DType::fp64);
    Matrix dgamma(1, h, DType::fp64), dbeta(1, h, DType::fp64);
    reference::layer_norm_forward(ctx, x, gamma, beta, kEpsilon, y, statistics);
    reference::layer_norm_backward_input(ctx, dy, x, gamma, statistics, residual, dx);
    reference::layer_norm_backward_weight(ctx, dy, x, statistics, dgamma, dbeta, false);
    const auto bound = [](int64_t, int64_t) { return kDifferenceBound; };
    expect_close(dx, numeric_gradient(x, loss), bound);
    expect_close(dgamma, numeric_gradient(gamma, loss), bound);
    expect_close(dbeta, numeric_gradient(beta, loss), bound);
}

}  // namespace
}  // namespace vocabpipe::kernels::test

// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/norm_sizes.hpp"
#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

constexpr float kEpsilon = 1e-5F;
const NormSizes kManyRows[] = {{1, 1, 3},   {3, 2, 3},    {5, 17, 3},   {17, 129, 3},
                               {2, 768, 3}, {150, 40, 8}, {300, 33, 3}, {131, 515, 3}};

// With |x| <= 1.5 the mean of h terms errs by at most 2 h eps, which z feels multiplied by
// inverse_std; the relative error of inverse_std is at most (h + 8) eps plus that of the
// differences x - mean, again 2 h eps * inverse_std. |z| <= sqrt(h). All together below (4 h + 16)
// eps (1 + |z|) (1 + inverse_std), times |gamma|. This holds for sums in any order.
double z_error(double h, double z, double inverse_std) {
    return (4 * h + 16) * kEps32 * (1 + std::abs(z)) * (1 + inverse_std);
}

class LayerNorm : public TypedOperatorTest {
protected:
    [[nodiscard]] Matrix statistics_of(const Matrix& x) const {
        Matrix unused(x.rows(), x.cols(), DType::fp64), statistics(x.rows(), 2, DType::fp32);
        const ConstTensor any = x.view().row_range(0, 1);
        reference::layer_norm_forward(host, x, any, any, kEpsilon, unused, statistics);
        return statistics;
    }
};

TEST_P(LayerNorm, ForwardAgreesWithTheReference) {
    for (const auto& [n, h, gap] : kNormSizes) {
        SCOPED_TRACE(testing::Message() << n << " x " << h);
        const auto x = random_with_gap(n, h, type(), gap, 1, -0.5, 1.5);
        const auto gamma = random_with_gap(1, h, type(), gap, 2, 0.5, 1.5);
        const auto beta = random_with_gap(1, h, type(), gap, 3);
        Matrix exact(n, h, DType::fp64), exact_statistics(n, 2, DType::fp64);
        reference::layer_norm_forward(host, x, gamma, beta, kEpsilon, exact, exact_statistics);
        const Uploaded y = poison(n, h, type(), gap), statistics = poison(n, 2, DType::fp32);
        ops().layer_norm_forward(ctx(), up(x), up(gamma), up(beta), kEpsilon, y, statistics);
        const auto count = static_cast<double>(h);
        expect_close(y.download(), exact, [&](int64_t row, int64_t col) {
            const double inverse_std = exact_statistics.get(row, 1);
            const double z = (x.get(row, col) - exact_statistics.get(row, 0)) * inverse_std;
            const double error = gamma.get(0, col) * z_error(count, z, inverse_std) + 4 * kEps32;
            return error + unit_roundoff(type()) * (std::abs(exact.get(row, col)) + error) * 1.01;
        });
        expect_close(statistics.download(), exact_statistics, [&](int64_t row, int64_t col) {
            const double inverse_std = exact_statistics.get(row, 1);
            return col == 0 ? 2 * (count + 1) * kEps32
                            : inverse_std * z_error(count, 0.0, inverse_std);
        });
    }
}

TEST_P(LayerNorm, InputGradientAgreesWithTheReferenceAndMayOverwriteWhatItReads) {
    for (const NormSizes& s : kNormSizes) {
        for (const bool with_residual : {false, true}) {
            SCOPED_TRACE(testing::Message() << s.n << " x " << s.h << " " << with_residual);
            const auto x = random_with_gap(s.n, s.h, type(), s.gap, 1, -0.5, 1.5);
            const auto dy = random_with_gap(s.n, s.h, type(), s.gap, 2);
            const auto gamma = random_with_gap(1, s.h, type(), s.gap, 3, 0.5, 1.5);
            const auto residual = random_with_gap(s.n, s.h, type(), s.gap, 4);
            const Matrix statistics = statistics_of(x);
            Matrix exact(s.n, s.h, DType::fp64);
            reference::layer_norm_backward_input(host, dy, x, gamma, statistics,
                                                 with_residual ? residual.view() : ConstTensor{},
                                                 exact);
            const Uploaded gradient = up(dy), in = up(x), weight = up(gamma);
            const Uploaded given = up(statistics), around = up(residual);
            const Uploaded dx = poison(s.n, s.h, type(), s.gap);
            const auto some = with_residual ? ConstTensor(around) : ConstTensor{};
            const auto backward = ops().layer_norm_backward_input;
            backward(ctx(), gradient, in, weight, given, some, dx);
            const Matrix result = dx.download();
            // The statistics are given. |g| <= 1.5; both means err by (h + 4) eps times the mean of
            // magnitudes, the second one times |z| once more.
            const auto z = [&](int64_t row, int64_t col) {
                return std::abs(x.get(row, col) - statistics.get(row, 0)) * statistics.get(row, 1);
            };
            std::vector<double> mean_z(static_cast<size_t>(s.n));
            for (int64_t row = 0; row < s.n; ++row) {
                for (int64_t i = 0; i < s.h; ++i) {
                    mean_z[static_cast<size_t>(row)] += z(row, i) / static_cast<double>(s.h);
                }
            }
            expect_close(result, exact, [&](int64_t row, int64_t col) {
                const double error = static_cast<double>(s.h + 8) * kEps32 *
                                         statistics.get(row, 1) * 1.5 *
                                         (2 + 2 * z(row, col) * mean_z[static_cast<size_t>(row)]) +
                                     2 * kEps32;
                return error +
                       unit_roundoff(type()) * (std::abs(exact.get(row, col)) + error) * 1.01;
            });
            if (with_residual) {
                backward(ctx(), gradient, in, weight, given, around, around);
                EXPECT_TRUE(around.download().same_bits(result)) << "in place of the residual";
            } else {
                backward(ctx(), gradient, in, weight, given, {}, gradient);
                EXPECT_TRUE(gradient.download().same_bits(result)) << "in place of dy";
            }
        }
    }
}

TEST_P(LayerNorm, WeightGradientsAgreeWithTheReferenceAndAccumulate) {
    for (const auto& [n, h, gap] : kManyRows) {
        for (const bool accumulate : {false, true}) {
            SCOPED_TRACE(testing::Message() << n << " x " << h << " " << accumulate);
            const auto x = random_with_gap(n, h, type(), gap, 1, -0.5, 1.5);
            const auto dy = random_with_gap(n, h, type(), gap, 2);
            const Matrix statistics = statistics_of(x);
            const Matrix gamma_start = start_of_sum(1, h, accumulate, 3);
            const Matrix beta_start = start_of_sum(1, h, accumulate, 4);
            auto exact_gamma = gamma_start.as(DType::fp64), exact_beta = beta_start.as(DType::fp64);
            reference::layer_norm_backward_weight(host, dy, x, statistics, exact_gamma, exact_beta,
                                                  accumulate);
            const Uploaded gradient = up(dy), in = up(x), given = up(statistics);
            for (Context* ctx : device().workspaces()) {
                const Uploaded dgamma = up(gamma_start), dbeta = up(beta_start);
                ops().layer_norm_backward_weight(*ctx, gradient, in, given, dgamma, dbeta,
                                                 accumulate);
                // n + 1 terms of magnitude at most sqrt(h) and 1; four roundings inside of a term.
                const auto terms = static_cast<double>(n + 1);
                expect_close(dgamma.download(), exact_gamma, [&, h = h](int64_t, int64_t) {
                    return terms * (terms + 4) * kEps32 * std::sqrt(static_cast<double>(h) + 1) * 2;
                });
                expect_close(dbeta.download(), exact_beta,
                             [&](int64_t, int64_t) { return terms * terms * kEps32; });
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, LayerNorm,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

using LayerNormBits = LayerNorm;

// Split backwards must have the bits of whole ones.
TEST_P(LayerNormBits, AllGradientsAtOnceAreThoseOfEachAlone) {
    for (Context* context : device().workspaces()) {
        for (const auto& [n, h, gap] : kNormSizesOfBits) {
            for (const bool accumulate : {false, true}) {
                SCOPED_TRACE(testing::Message() << n << " x " << h);
                Context& ctx = *context;
                const Uploaded x = up(random_with_gap(n, h, type(), gap, 1, -0.5, 1.5));
                const Uploaded dy = up(random_with_gap(n, h, type(), gap, 2));
                const Uploaded gamma = up(random_with_gap(1, h, type(), gap, 3, 0.5, 1.5));
                const Uploaded around = up(random_with_gap(n, h, type(), gap, 4));
                const Uploaded statistics = up(Matrix::random(n, 2, DType::fp32, 5, 0.5, 2.0));
                const auto start = [&, h = h](unsigned seed) {
                    return up(start_of_sum(1, h, accumulate, seed));
                };
                const Uploaded dgamma = start(6), dbeta = start(7);
                const Uploaded both_gamma = start(6), both_beta = start(7);
                const Uploaded dx = poison(n, h, type(), gap);
                ops().layer_norm_backward_input(ctx, dy, x, gamma, statistics, around, dx);
                ops().layer_norm_backward_weight(ctx, dy, x, statistics, dgamma, dbeta, accumulate);
                // In place of the residual, which has then been read, and of dy, which has served
                // for the sums.
                ops().layer_norm_backward(ctx, dy, x, gamma, statistics, around, around, both_gamma,
                                          both_beta, accumulate);
                EXPECT_TRUE(around.download().same_bits(dx.download()));
                EXPECT_TRUE(both_gamma.download().same_bits(dgamma.download()));
                EXPECT_TRUE(both_beta.download().same_bits(dbeta.download()));
                ops().layer_norm_backward_input(ctx, dy, x, gamma, statistics, {}, dx);
                ops().layer_norm_backward(ctx, dy, x, gamma, statistics, {}, dy, both_gamma,
                                          both_beta, false);
                EXPECT_TRUE(dy.download().same_bits(dx.download()));
                if (accumulate) continue;
                EXPECT_TRUE(both_gamma.download().same_bits(dgamma.download()));
                EXPECT_TRUE(both_beta.download().same_bits(dbeta.download()));
            }
        }
    }
}

TEST_P(LayerNormBits, AreTheSameForAnyThreads) {
    const int64_t n = 131, h = 515;
    const auto x = Matrix::random(n, h, type(), 1), dy = Matrix::random(n, h, type(), 2);
    const auto gamma = Matrix::random(1, h, type(), 3);
    const Uploaded in = up(x), gradient = up(dy), weight = up(gamma);
    expect_same_bits_with_any_threads([&](Context& ctx) {
        const Uploaded y = poison(n, h, type()), statistics = poison(n, 2, DType::fp32);
        const Uploaded dx = poison(n, h, type());
        const Uploaded dgamma = poison(1, h, DType::fp32), dbeta = poison(1, h, DType::fp32);
        ops().layer_norm_forward(ctx, in, weight, weight, kEpsilon, y, statistics);
        ops().layer_norm_backward_input(ctx, gradient, in, weight, statistics, {}, dx);
        ops().layer_norm_backward_weight(ctx, gradient, in, statistics, dgamma, dbeta, false);
        return std::vector{y.download(), statistics.download(), dx.download(), dgamma.download(),
                           dbeta.download()};
    });
}

INSTANTIATE_TEST_SUITE_P(Devices, LayerNormBits,
                         testing::Combine(testing::ValuesIn(product_devices()), kTypes), kNames);

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

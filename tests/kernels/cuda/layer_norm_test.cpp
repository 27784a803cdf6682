// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include "kernels/reference/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

constexpr float kEpsilon = 1e-5F;
struct LayerNormSizes {
    int64_t n, h;
    int64_t gap;
};
// The last two are longer than what a block keeps in registers.
const LayerNormSizes kLayerNormSizes[] = {{1, 1, 3},    {3, 2, 3},    {5, 17, 3},
                                          {17, 129, 3}, {9, 64, 8},   {2, 768, 8},
                                          {70, 40, 0},  {2, 1100, 3}, {2, 8320, 8}};

class CudaLayerNorm : public OnDeviceWithParam<DType> {
protected:
    Context host{{.threads = 1, .poll = {}}};  ///< for the reference kernels
};

// The bounds are those of the host's operators, derived in tests/kernels/layer_norm_test.cpp: they
// hold for sums in any order.
double z_error(double h, double z, double inverse_std) {
    return (4 * h + 16) * kEps32 * (1 + std::abs(z)) * (1 + inverse_std);
}

TEST_P(CudaLayerNorm, ForwardAgreesWithTheReference) {
    const DType type = GetParam();
    Device device;
    for (const auto& [n, h, gap] : kLayerNormSizes) {
        SCOPED_TRACE(testing::Message() << n << " x " << h);
        const auto x = random_with_gap(n, h, type, gap, 1, -0.5, 1.5);
        const auto gamma = random_with_gap(1, h, type, gap, 2, 0.5, 1.5);
        const auto beta = random_with_gap(1, h, type, gap, 3);
        Matrix exact(n, h, DType::fp64), exact_statistics(n, 2, DType::fp64);
        reference::layer_norm_forward(host, x, gamma, beta, kEpsilon, exact, exact_statistics);
        const DeviceMatrix dx(device, x), dgamma(device, gamma), dbeta(device, beta);
        const DeviceMatrix y(device, Matrix(n, h, type, gap));
        const DeviceMatrix statistics(device, Matrix(n, 2, DType::fp32));
        cuda::layer_norm_forward(device.context(), dx, dgamma, dbeta, kEpsilon, y, statistics);
        const auto count = static_cast<double>(h);
        expect_close(y.download(), exact, [&](int64_t row, int64_t col) {
            const double inverse_std = exact_statistics.get(row, 1);
            const double z = (x.get(row, col) - exact_statistics.get(row, 0)) * inverse_std;
            const double error = z_error(count, z, inverse_std) * std::abs(gamma.get(0, col));
            return error + 4 * kEps32 * (1 + std::abs(exact.get(row, col))) +
                   unit_roundoff(type) * (std::abs(exact.get(row, col)) + error) * 1.01;
        });
        expect_close(statistics.download(), exact_statistics, [&](int64_t row, int64_t col) {
            const double inverse_std = exact_statistics.get(row, 1);
            return col == 0 ? 2 * (count + 1) * kEps32
                            : inverse_std * z_error(count, 0.0, inverse_std);
        });
    }
}

TEST_P(CudaLayerNorm, InputGradientAgreesWithTheReferenceAndMayOverwriteWhatItReads) {
    const DType type = GetParam();
    Device device;
    for (const auto& sizes : kLayerNormSizes) {
        const int64_t n = sizes.n, h = sizes.h, gap = sizes.gap;
        for (const bool with_residual : {false, true}) {
            SCOPED_TRACE(testing::Message() << n << " x " << h << " " << with_residual);
            const auto x = random_with_gap(n, h, type, gap, 1, -0.5, 1.5);
            const auto dy = random_with_gap(n, h, type, gap, 2);
            const auto gamma = random_with_gap(1, h, type, gap, 3, 0.5, 1.5);
            const auto residual = random_with_gap(n, h, type, gap, 4);
            Matrix unused(n, h, DType::fp64), statistics(n, 2, DType::fp32);
            reference::layer_norm_forward(host, x, gamma, gamma, kEpsilon, unused, statistics);
            Matrix exact(n, h, DType::fp64);
            reference::layer_norm_backward_input(host, dy, x, gamma, statistics,
                                                 with_residual ? residual.view() : ConstTensor{},
                                                 exact);
            const DeviceMatrix ddy(device, dy), dx_in(device, x), dgamma(device, gamma);
            const DeviceMatrix dstatistics(device, statistics), dresidual(device, residual);
            const DeviceMatrix dx(device, Matrix(n, h, type, gap));
            const auto some = with_residual ? ConstTensor(dresidual) : ConstTensor{};
            cuda::layer_norm_backward_input(device.context(), ddy, dx_in, dgamma, dstatistics, some,
                                            dx);
            const Matrix result = dx.download();
            std::vector<double> mean_z(static_cast<size_t>(n));
            for (int64_t row = 0; row < n; ++row) {
                for (int64_t i = 0; i < h; ++i) {
                    mean_z[static_cast<size_t>(row)] +=
                        std::abs(x.get(row, i) - statistics.get(row, 0)) * statistics.get(row, 1) /
                        static_cast<double>(h);
                }
            }
            expect_close(result, exact, [&](int64_t row, int64_t col) {
                const double inverse_std = statistics.get(row, 1);
                const double z = std::abs(x.get(row, col) - statistics.get(row, 0)) * inverse_std;
                const double error = static_cast<double>(h + 8) * kEps32 * inverse_std * 1.5 *
                                         (2 + 2 * z * mean_z[static_cast<size_t>(row)]) +
                                     2 * kEps32;
                return error + unit_roundoff(type) * (std::abs(exact.get(row, col)) + error) * 1.01;
            });
            // In place of dy, and of the residual.
            if (with_residual) {
                cuda::layer_norm_backward_input(device.context(), ddy, dx_in, dgamma, dstatistics,
                                                dresidual, dresidual);
                EXPECT_TRUE(dresidual.download().same_bits(result));
            } else {
                cuda::layer_norm_backward_input(device.context(), ddy, dx_in, dgamma, dstatistics,
                                                {}, ddy);
                EXPECT_TRUE(ddy.download().same_bits(result));
            }
        }
    }
}

TEST_P(CudaLayerNorm, WeightGradientsAgreeWithTheReferenceAndAccumulate) {
    const DType type = GetParam();
    // A workspace that holds the sums of no piece, of a few, and of all.
    for (const size_t workspace : {size_t{0}, size_t{4096}, size_t{1} << 20}) {
        Device device(workspace);
        for (const auto& [n, h, gap] :
             {LayerNormSizes{1, 1, 3}, {5, 17, 3}, {150, 40, 8}, {300, 33, 3}}) {
            for (const bool accumulate : {false, true}) {
                SCOPED_TRACE(testing::Message() << n << " x " << h << " " << workspace);
                const auto x = random_with_gap(n, h, type, gap, 1, -0.5, 1.5);
                const auto dy = random_with_gap(n, h, type, gap, 2);
                Matrix unused(n, h, DType::fp64), statistics(n, 2, DType::fp32);
                reference::layer_norm_forward(host, x, x.view().row_range(0, 1),
                                              x.view().row_range(0, 1), kEpsilon, unused,
                                              statistics);
                const Matrix gamma_start =
                    accumulate ? Matrix::random(1, h, DType::fp32, 3) : Matrix(1, h, DType::fp32);
                const Matrix beta_start =
                    accumulate ? Matrix::random(1, h, DType::fp32, 4) : Matrix(1, h, DType::fp32);
                auto exact_gamma = gamma_start.as(DType::fp64);
                auto exact_beta = beta_start.as(DType::fp64);
                reference::layer_norm_backward_weight(host, dy, x, statistics, exact_gamma,
                                                      exact_beta, accumulate);
                const DeviceMatrix ddy(device, dy), dx(device, x), dstatistics(device, statistics);
                const DeviceMatrix dgamma(device, gamma_start), dbeta(device, beta_start);
                cuda::layer_norm_backward_weight(device.context(), ddy, dx, dstatistics, dgamma,
                                                 dbeta, accumulate);
                // n + 1 terms of magnitude at most sqrt(h) and 1; four roundings inside of a term.
                const auto terms = static_cast<double>(n + 1);
                expect_close(dgamma.download(), exact_gamma, [&](int64_t, int64_t) {
                    return terms * (terms + 4) * kEps32 * std::sqrt(static_cast<double>(h) + 1) * 2;
                });
                expect_close(dbeta.download(), exact_beta,
                             [&](int64_t, int64_t) { return terms * terms * kEps32; });
            }
        }
    }
}

// Split backwards must have the bits of whole ones.
TEST_P(CudaLayerNorm, AllGradientsAtOnceHaveTheBitsOfEachAlone) {
    const DType type = GetParam();
    // A workspace that holds the sums of no piece, of a few, and of all.
    for (const size_t workspace : {size_t{0}, size_t{4096}, size_t{1} << 20}) {
        Device device(workspace);
        for (const auto& [n, h, gap] : {LayerNormSizes{1, 1, 3},
                                        {17, 129, 3},
                                        {21, 768, 8},
                                        {70, 40, 0},
                                        {3, 1100, 3},
                                        {3, 8192, 8},
                                        {2, 8320, 8}}) {
            for (const bool accumulate : {false, true}) {
                SCOPED_TRACE(testing::Message() << n << " x " << h << " " << workspace);
                const DeviceMatrix x(device, random_with_gap(n, h, type, gap, 1, -0.5, 1.5));
                const DeviceMatrix dy(device, random_with_gap(n, h, type, gap, 2));
                const DeviceMatrix gamma(device, random_with_gap(1, h, type, gap, 3, 0.5, 1.5));
                const DeviceMatrix around(device, random_with_gap(n, h, type, gap, 4));
                const DeviceMatrix statistics(device,
                                              Matrix::random(n, 2, DType::fp32, 5, 0.5, 2.0));
                const auto start = [&](unsigned seed) {
                    return DeviceMatrix(device, accumulate ? Matrix::random(1, h, DType::fp32, seed)
                                                           : Matrix(1, h, DType::fp32));
                };
                const auto dgamma = start(6), dbeta = start(7), both_gamma = start(6),
                           both_beta = start(7);
                const DeviceMatrix dx(device, Matrix(n, h, type, gap));
                Context& ctx = device.context();
                cuda::layer_norm_backward_input(ctx, dy, x, gamma, statistics, around, dx);
                cuda::layer_norm_backward_weight(ctx, dy, x, statistics, dgamma, dbeta, accumulate);
                // In place of the residual, which has then been read, and of dy, which has served
                // for the sums.
                cuda::layer_norm_backward(ctx, dy, x, gamma, statistics, around, around, both_gamma,
                                          both_beta, accumulate);
                EXPECT_TRUE(around.download().same_bits(dx.download()));
                EXPECT_TRUE(both_gamma.download().same_bits(dgamma.download()));
                EXPECT_TRUE(both_beta.download().same_bits(dbeta.download()));
                cuda::layer_norm_backward_input(ctx, dy, x, gamma, statistics, {}, dx);
                cuda::layer_norm_backward(ctx, dy, x, gamma, statistics, {}, dy, both_gamma,
                                          both_beta, false);
                EXPECT_TRUE(dy.download().same_bits(dx.download()));
                if (accumulate) continue;
                EXPECT_TRUE(both_gamma.download().same_bits(dgamma.download()));
                EXPECT_TRUE(both_beta.download().same_bits(dbeta.download()));
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaLayerNorm, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace vocabpipe::kernels::test

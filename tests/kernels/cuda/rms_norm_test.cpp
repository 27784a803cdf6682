// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rms_norm.hpp"

#include "kernels/reference/rms_norm.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/cuda/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct Sizes {
    int64_t n, h;
    int64_t gap;
};
// The last two are longer than what a block keeps in registers.
const Sizes kSizes[] = {{1, 1, 3},   {3, 2, 3},   {5, 17, 3},   {17, 129, 3}, {9, 64, 8},
                        {2, 768, 8}, {70, 40, 0}, {2, 1100, 3}, {2, 8320, 8}};
const RmsNormOptions kLlama{.epsilon = 1e-5F};
const RmsNormOptions kGemma{.weight_offset = 1};

class CudaRmsNorm : public OnDeviceWithParam<DType> {
protected:
    Context host{{.threads = 1, .poll = {}}};  ///< for the reference kernels
};

// A sum of h squares in any order is off by (h + 2) eps of itself, its root by half of that, and
// what is made of it rounds a few times more; no term cancels another one.
double z_relative(int64_t h) {
    return static_cast<double>(h + 16) * kEps32;
}

TEST_P(CudaRmsNorm, ForwardAgreesWithTheReferenceAndMayOverwriteTheResidual) {
    const DType type = GetParam();
    Device device;
    for (const auto& sizes : kSizes) {
        const int64_t n = sizes.n, h = sizes.h, gap = sizes.gap;
        for (const bool gemma : {false, true}) {
            SCOPED_TRACE(testing::Message() << n << " x " << h << " " << gemma);
            const RmsNormOptions& options = gemma ? kGemma : kLlama;
            const auto x = random_with_gap(n, h, type, gap, 1, -0.5, 1.5);
            const auto gamma = random_with_gap(1, h, type, gap, 2, gemma ? -0.5 : 0.5, 0.7);
            const auto residual = random_with_gap(n, h, type, gap, 3);
            const ConstTensor around = gemma ? residual.view() : ConstTensor{};
            Matrix exact(n, h, DType::fp64), exact_statistics(n, 1, DType::fp64);
            reference::rms_norm_forward(host, x, gamma, options, around, exact, exact_statistics);
            const DeviceMatrix dx(device, x), dgamma(device, gamma), dresidual(device, residual);
            const DeviceMatrix y(device, Matrix(n, h, type, gap));
            const DeviceMatrix statistics(device, Matrix(n, 1, DType::fp32));
            cuda::rms_norm_forward(device.context(), dx, dgamma, options,
                                   gemma ? ConstTensor(dresidual) : ConstTensor{}, y, statistics);
            const Matrix result = y.download();
            expect_close(result, exact, [&](int64_t row, int64_t col) {
                const double normed = std::abs(exact.get(row, col)) +
                                      (gemma ? std::abs(residual.get(row, col)) : 0.0);
                const double error = normed * z_relative(h);
                return error + unit_roundoff(type) * (std::abs(exact.get(row, col)) + error) * 1.01;
            });
            expect_close(statistics.download(), exact_statistics, [&](int64_t row, int64_t) {
                return exact_statistics.get(row, 0) * z_relative(h);
            });
            if (!gemma) continue;
            cuda::rms_norm_forward(device.context(), dx, dgamma, options, dresidual, dresidual,
                                   statistics);
            EXPECT_TRUE(dresidual.download().same_bits(result));
        }
    }
}

TEST_P(CudaRmsNorm, InputGradientAgreesWithTheReferenceAndMayOverwriteWhatItReads) {
    const DType type = GetParam();
    Device device;
    for (const auto& sizes : kSizes) {
        const int64_t n = sizes.n, h = sizes.h, gap = sizes.gap;
        for (const bool gemma : {false, true}) {
            SCOPED_TRACE(testing::Message() << n << " x " << h << " " << gemma);
            const RmsNormOptions& options = gemma ? kGemma : kLlama;
            const auto x = random_with_gap(n, h, type, gap, 1, -0.5, 1.5);
            const auto dy = random_with_gap(n, h, type, gap, 2);
            const auto gamma = random_with_gap(1, h, type, gap, 3, gemma ? -0.5 : 0.5, 0.7);
            const auto residual = random_with_gap(n, h, type, gap, 4);
            const ConstTensor around = gemma ? residual.view() : ConstTensor{};
            Matrix unused(n, h, DType::fp64), statistics(n, 1, DType::fp32);
            reference::rms_norm_forward(host, x, gamma, options, {}, unused, statistics);
            Matrix exact(n, h, DType::fp64);
            reference::rms_norm_backward_input(host, dy, x, gamma, options, statistics, around,
                                               exact);
            const DeviceMatrix ddy(device, dy), dx_in(device, x), dgamma(device, gamma);
            const DeviceMatrix dstatistics(device, statistics), dresidual(device, residual);
            const DeviceMatrix dx(device, Matrix(n, h, type, gap));
            cuda::rms_norm_backward_input(device.context(), ddy, dx_in, dgamma, options,
                                          dstatistics,
                                          gemma ? ConstTensor(dresidual) : ConstTensor{}, dx);
            const Matrix result = dx.download();
            const auto z = [&](int64_t row, int64_t i) {
                return std::abs(x.get(row, i)) * statistics.get(row, 0);
            };
            const auto g = [&](int64_t row, int64_t i) {
                return std::abs(dy.get(row, i)) *
                       (gamma.get(0, i) + static_cast<double>(options.weight_offset));
            };
            std::vector<double> mean(static_cast<size_t>(n));
            for (int64_t row = 0; row < n; ++row) {
                for (int64_t i = 0; i < h; ++i) {
                    mean[static_cast<size_t>(row)] +=
                        g(row, i) * z(row, i) / static_cast<double>(h);
                }
            }
            // the mean's error, and a few roundings of each addend
            expect_close(result, exact, [&](int64_t row, int64_t col) {
                const double size = statistics.get(row, 0) *
                                    (g(row, col) + z(row, col) * mean[static_cast<size_t>(row)]);
                const double error =
                    size * z_relative(h) + 2 * kEps32 * std::abs(exact.get(row, col));
                return error + unit_roundoff(type) * (std::abs(exact.get(row, col)) + error) * 1.01;
            });
            if (gemma) {
                cuda::rms_norm_backward_input(device.context(), ddy, dx_in, dgamma, options,
                                              dstatistics, dresidual, dresidual);
                EXPECT_TRUE(dresidual.download().same_bits(result)) << "in place of the residual";
            } else {
                cuda::rms_norm_backward_input(device.context(), ddy, dx_in, dgamma, options,
                                              dstatistics, {}, ddy);
                EXPECT_TRUE(ddy.download().same_bits(result)) << "in place of dy";
            }
        }
    }
}

TEST_P(CudaRmsNorm, WeightGradientAgreesWithTheReferenceAndAccumulates) {
    const DType type = GetParam();
    // A workspace that holds the sums of no piece, of a few, and of all.
    for (const size_t workspace : {size_t{0}, size_t{2048}, size_t{1} << 20}) {
        Device device(workspace);
        for (const auto& [n, h, gap] : {Sizes{1, 1, 3}, {5, 17, 3}, {150, 40, 8}, {300, 33, 3}}) {
            for (const bool accumulate : {false, true}) {
                SCOPED_TRACE(testing::Message() << n << " x " << h << " " << workspace);
                const auto x = random_with_gap(n, h, type, gap, 1, -0.5, 1.5);
                const auto dy = random_with_gap(n, h, type, gap, 2);
                const auto statistics = Matrix::random(n, 1, DType::fp32, 3, 0.5, 2.0);
                const Matrix start =
                    accumulate ? Matrix::random(1, h, DType::fp32, 4) : Matrix(1, h, DType::fp32);
                auto exact = start.as(DType::fp64);
                auto magnitude = start.magnitude();
                reference::rms_norm_backward_weight(host, dy, x, statistics, exact, accumulate);
                reference::rms_norm_backward_weight(host, dy.magnitude(), x.magnitude(), statistics,
                                                    magnitude, accumulate);
                const DeviceMatrix ddy(device, dy), dx(device, x), dstatistics(device, statistics);
                const DeviceMatrix dgamma(device, start);
                cuda::rms_norm_backward_weight(device.context(), ddy, dx, dstatistics, dgamma,
                                               accumulate);
                expect_close(dgamma.download(), exact,
                             sum_bound(magnitude, exact, n + 3, DType::fp32));
            }
        }
    }
}

TEST_P(CudaRmsNorm, RefusesAResidualOfAnotherType) {
    Device device;
    const DType other = GetParam() == DType::fp32 ? DType::bf16 : DType::fp32;
    const DeviceMatrix x(device, Matrix::random(2, 8, GetParam(), 1));
    const DeviceMatrix gamma(device, Matrix::random(1, 8, GetParam(), 2));
    const DeviceMatrix residual(device, Matrix::random(2, 8, other, 3));
    const DeviceMatrix statistics(device, Matrix(2, 1, DType::fp32));
    EXPECT_THROW(
        cuda::rms_norm_forward(device.context(), x, gamma, kLlama, residual, x.view(), statistics),
        UsageError);
}

INSTANTIATE_TEST_SUITE_P(Types, CudaRmsNorm, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace vocabpipe::kernels::test

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include "kernels/reference/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/rms_norm_oracle.hpp"
#include "tests/kernels/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct RmsNormSizes {
    int64_t n, h;
    int64_t gap;
};
// The last two are longer than what a block keeps in registers.
const RmsNormSizes kRmsNormSizes[] = {{1, 1, 3},    {3, 2, 3},    {5, 17, 3},
                                      {17, 129, 3}, {9, 64, 8},   {2, 768, 8},
                                      {70, 40, 0},  {2, 1100, 3}, {2, 8320, 8}};
const RmsNormOptions kRmsNormOptions[] = {{}, {.epsilon = 1e-2F, .weight_offset = 1}};

class CudaRmsNorm : public OnDeviceWithParam<DType> {
protected:
    Context host{{.threads = 1, .poll = {}}};  ///< for the reference kernels
};

/// Calls body(sizes, options, with_residual) for all of them.
template <typename Body>
void for_all(Body&& body) {
    for (const RmsNormSizes& sizes : kRmsNormSizes) {
        for (const RmsNormOptions& options : kRmsNormOptions) {
            for (const bool with_residual : {false, true}) {
                SCOPED_TRACE(testing::Message()
                             << sizes.n << " x " << sizes.h << " " << with_residual);
                body(sizes, options, with_residual);
            }
        }
    }
}

TEST_P(CudaRmsNorm, ForwardAgreesWithTheReferenceAndMayOverwriteTheResidual) {
    const DType type = GetParam();
    Device device;
    for_all([&](const RmsNormSizes& sizes, const RmsNormOptions& options, bool with_residual) {
        const int64_t n = sizes.n, h = sizes.h, gap = sizes.gap;
        const auto x = random_with_gap(n, h, type, gap, 1, -0.5, 1.5);
        const auto gamma = random_with_gap(1, h, type, gap, 2, -0.5, 1.5);
        const auto residual = random_with_gap(n, h, type, gap, 3);
        Matrix exact(n, h, DType::fp64), exact_statistics(n, 1, DType::fp64);
        reference::rms_norm_forward(host, x, gamma, options,
                                    with_residual ? residual.view() : ConstTensor{}, exact,
                                    exact_statistics);
        const DeviceMatrix dx(device, x), dgamma(device, gamma), dresidual(device, residual);
        const DeviceMatrix y(device, Matrix(n, h, type, gap));
        const DeviceMatrix statistics(device, Matrix(n, 1, DType::fp32));
        cuda::rms_norm_forward(device.context(), dx, dgamma, options,
                               with_residual ? ConstTensor(dresidual) : ConstTensor{}, y,
                               statistics);
        const Matrix result = y.download();
        const RmsNormErrors errors{x, gamma, options, exact_statistics, type};
        expect_close(result, exact, errors.of_forward(exact));
        expect_close(statistics.download(), exact_statistics, errors.of_statistics());
        if (!with_residual) return;
        cuda::rms_norm_forward(device.context(), dx, dgamma, options, dresidual, dresidual,
                               statistics);
        EXPECT_TRUE(dresidual.download().same_bits(result));
    });
}

TEST_P(CudaRmsNorm, InputGradientAgreesWithTheReferenceAndMayOverwriteWhatItReads) {
    const DType type = GetParam();
    Device device;
    for_all([&](const RmsNormSizes& sizes, const RmsNormOptions& options, bool with_residual) {
        const int64_t n = sizes.n, h = sizes.h, gap = sizes.gap;
        const auto x = random_with_gap(n, h, type, gap, 1, -0.5, 1.5);
        const auto dy = random_with_gap(n, h, type, gap, 2);
        const auto gamma = random_with_gap(1, h, type, gap, 3, -0.5, 1.5);
        const auto residual = random_with_gap(n, h, type, gap, 4);
        Matrix unused(n, h, DType::fp64), statistics(n, 1, DType::fp32);
        reference::rms_norm_forward(host, x, gamma, options, {}, unused, statistics);
        Matrix exact(n, h, DType::fp64);
        reference::rms_norm_backward_input(host, dy, x, gamma, options, statistics,
                                           with_residual ? residual.view() : ConstTensor{}, exact);
        const DeviceMatrix ddy(device, dy), dx_in(device, x), dgamma(device, gamma);
        const DeviceMatrix dstatistics(device, statistics), dresidual(device, residual);
        const DeviceMatrix dx(device, Matrix(n, h, type, gap));
        const auto backward = [&](ConstTensor around, Tensor to) {
            cuda::rms_norm_backward_input(device.context(), ddy, dx_in, dgamma, options,
                                          dstatistics, around, to);
        };
        backward(with_residual ? ConstTensor(dresidual) : ConstTensor{}, dx);
        const Matrix result = dx.download();
        const RmsNormErrors errors{x, gamma, options, statistics, type};
        expect_close(result, exact, errors.of_backward_input(dy, exact));
        if (with_residual) {
            backward(dresidual, dresidual);
            EXPECT_TRUE(dresidual.download().same_bits(result)) << "in place of the residual";
        } else {
            backward({}, ddy);
            EXPECT_TRUE(ddy.download().same_bits(result)) << "in place of dy";
        }
    });
}

TEST_P(CudaRmsNorm, WeightGradientAgreesWithTheReferenceAndAccumulates) {
    const DType type = GetParam();
    // A workspace that holds the sums of no piece, of a few, and of all.
    for (const size_t workspace : {size_t{0}, size_t{2048}, size_t{1} << 20}) {
        Device device(workspace);
        for (const auto& [n, h, gap] :
             {RmsNormSizes{1, 1, 3}, {5, 17, 3}, {150, 40, 8}, {300, 33, 3}}) {
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

// Two tensor ranks have some of the columns each.
TEST_P(CudaRmsNorm, OfSomeColumnsAgreesWithTheReferenceOfAll) {
    const DType type = GetParam();
    Device device;
    Context& ctx = device.context();
    const RmsNormOptions& options = kRmsNormOptions[1];
    for (const auto& [n, part, gap] :
         {RmsNormSizes{1, 1, 3}, {5, 17, 3}, {9, 64, 8}, {2, 4160, 8}}) {
        SCOPED_TRACE(testing::Message() << n << " x " << 2 * part);
        const int64_t h = 2 * part;
        const auto x = random_with_gap(n, h, type, gap, 1, -0.5, 1.5);
        const auto dy = random_with_gap(n, h, type, gap, 2);
        const auto gamma = random_with_gap(1, h, type, gap, 3, -0.5, 1.5);
        Matrix exact(n, h, DType::fp64), exact_dx(n, h, DType::fp64), all(n, 1, DType::fp32);
        reference::rms_norm_forward(host, x, gamma, options, {}, exact, all);
        reference::rms_norm_backward_input(host, dy, x, gamma, options, all, {}, exact_dx);
        const DeviceMatrix x_in(device, x), dy_in(device, dy), gamma_in(device, gamma);
        const DeviceMatrix y(device, Matrix(n, h, type, gap)), dx(device, Matrix(n, h, type, gap));
        const DeviceMatrix inverse_rms(device, all), statistics(device, all);
        const auto half = [&, part = part](const DeviceMatrix& of, int i) {
            return of.view().column_range(i * part, part);
        };
        RmsNormOptions of_part = options;
        of_part.columns = h;
        for (const bool with_dy : {false, true}) {
            Matrix sums(1, n, DType::fp32);
            for (const int i : {0, 1}) {
                const DeviceMatrix own(device, sums);
                cuda::rms_norm_sums(ctx, with_dy ? half(dy_in, i) : Tensor{}, half(x_in, i),
                                    with_dy ? half(gamma_in, i) : Tensor{}, options,
                                    with_dy ? inverse_rms.view() : Tensor{}, own);
                const Matrix made = own.download();
                for (int64_t row = 0; row < n; ++row) {
                    sums.set(0, row, made.get(0, row) + (i == 0 ? 0 : sums.get(0, row)));
                }
            }
            const DeviceMatrix of_all(device, sums);
            of_part.sums = of_all;
            for (const int i : {0, 1}) {
                if (with_dy) {
                    cuda::rms_norm_backward_input(ctx, half(dy_in, i), half(x_in, i),
                                                  half(gamma_in, i), of_part, inverse_rms, {},
                                                  half(dx, i));
                } else {
                    cuda::rms_norm_forward(ctx, half(x_in, i), half(gamma_in, i), of_part, {},
                                           half(y, i), statistics);
                }
            }
            const RmsNormErrors errors{x, gamma, options, all, type};
            if (with_dy) {
                expect_close(dx.download(), exact_dx, errors.of_backward_input(dy, exact_dx));
            } else {
                expect_close(y.download(), exact, errors.of_forward(exact));
                expect_close(statistics.download(), all.as(DType::fp64), errors.of_statistics());
            }
        }
    }
}

// Split backwards must have the bits of whole ones.
TEST_P(CudaRmsNorm, AllGradientsAtOnceHaveTheBitsOfEachAlone) {
    const DType type = GetParam();
    for (const size_t workspace : {size_t{0}, size_t{2048}, size_t{1} << 20}) {
        Device device(workspace);
        for (const auto& [n, h, gap] : {RmsNormSizes{1, 1, 3},
                                        {17, 129, 3},
                                        {21, 768, 8},
                                        {70, 40, 0},
                                        {3, 1100, 3},
                                        {3, 8192, 8},
                                        {2, 8320, 8}}) {
            for (const bool accumulate : {false, true}) {
                SCOPED_TRACE(testing::Message() << n << " x " << h << " " << workspace);
                const RmsNormOptions& options = kRmsNormOptions[accumulate ? 1 : 0];
                const DeviceMatrix x(device, random_with_gap(n, h, type, gap, 1, -0.5, 1.5));
                const DeviceMatrix dy(device, random_with_gap(n, h, type, gap, 2));
                const DeviceMatrix gamma(device, random_with_gap(1, h, type, gap, 3, -0.5, 1.5));
                const DeviceMatrix around(device, random_with_gap(n, h, type, gap, 4));
                const DeviceMatrix statistics(device,
                                              Matrix::random(n, 1, DType::fp32, 5, 0.5, 2.0));
                const Matrix start =
                    accumulate ? Matrix::random(1, h, DType::fp32, 6) : Matrix(1, h, DType::fp32);
                const DeviceMatrix dgamma(device, start), both_gamma(device, start);
                const DeviceMatrix dx(device, Matrix(n, h, type, gap));
                Context& ctx = device.context();
                cuda::rms_norm_backward_input(ctx, dy, x, gamma, options, statistics, around, dx);
                cuda::rms_norm_backward_weight(ctx, dy, x, statistics, dgamma, accumulate);
                // In place of the residual, which has then been read, and of dy, which has served
                // for the sums.
                cuda::rms_norm_backward(ctx, dy, x, gamma, options, statistics, around, around,
                                        both_gamma, accumulate);
                EXPECT_TRUE(around.download().same_bits(dx.download()));
                EXPECT_TRUE(both_gamma.download().same_bits(dgamma.download()));
                cuda::rms_norm_backward_input(ctx, dy, x, gamma, options, statistics, {}, dx);
                cuda::rms_norm_backward(ctx, dy, x, gamma, options, statistics, {}, dy, both_gamma,
                                        false);
                EXPECT_TRUE(dy.download().same_bits(dx.download()));
                if (!accumulate) {
                    EXPECT_TRUE(both_gamma.download().same_bits(dgamma.download()));
                }
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
        cuda::rms_norm_forward(device.context(), x, gamma, {}, residual, x.view(), statistics),
        UsageError);
}

INSTANTIATE_TEST_SUITE_P(Types, CudaRmsNorm, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace vocabpipe::kernels::test

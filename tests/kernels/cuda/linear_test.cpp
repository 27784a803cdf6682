// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include "kernels/reference/operators.hpp"
#include "tests/kernels/activations.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct LinearSizes {
    int64_t n, in, out;
    int64_t gap;  ///< 3: nothing is aligned; 8: rows are, where their length is a multiple of 8
};
const LinearSizes kLinearSizes[] = {{1, 1, 1, 3},    {1, 17, 3, 3},  {3, 1, 17, 3},
                                    {17, 3, 1, 3},   {17, 33, 9, 3}, {16, 24, 40, 8},
                                    {70, 64, 16, 8}, {8, 16, 72, 0}};

/// |gelu'| < 1.13.
constexpr double kSteepest = 1.13;
/// cuBLASLt may take tanh from the special function unit, to 2^-11 of its value: half of that in
/// the sigmoid, doubled to be safe.
double gelu_error(DType type) {
    return type == DType::bf16 ? 0x1p-11 : 0.0;
}

using Types = std::tuple<DType, DType>;

class CudaLinear : public OnDeviceWithParam<Types> {
protected:
    DType in_type() const { return std::get<0>(GetParam()); }
    DType out_type() const { return std::get<1>(GetParam()); }
    Context host{{.threads = 1, .poll = {}}};  ///< for the reference kernels
};

/// Operators with one type for all that is no gradient of a weight.
class CudaLinearOfType : public OnDeviceWithParam<DType> {
protected:
    Context host{{.threads = 1, .poll = {}}};
};

/// x, w and a bias, the exact product and the product of magnitudes.
struct Forward {
    Matrix x, w, bias, exact, scale;

    Forward(Context& ctx, const LinearSizes& s, DType type)
        : x(random_with_gap(s.n, s.in, type, s.gap, 1)),
          w(random_with_gap(s.out, s.in, type, s.gap, 2)),
          bias(random_with_gap(1, s.out, type, s.gap, 3)),
          exact(s.n, s.out, DType::fp64),
          scale(s.n, s.out, DType::fp64) {
        reference::linear_forward(ctx, x, w, bias, exact);
        reference::linear_forward(ctx, x.magnitude(), w.magnitude(), bias.magnitude(), scale);
    }
};

TEST_P(CudaLinear, ForwardAgreesWithTheReference) {
    Device device;
    for (const LinearSizes& s : kLinearSizes) {
        SCOPED_TRACE(testing::Message() << s.n << " x " << s.in << " x " << s.out);
        const Forward f(host, s, in_type());
        const DeviceMatrix x(device, f.x), w(device, f.w), bias(device, f.bias);
        const DeviceMatrix y(device, Matrix(s.n, s.out, out_type(), s.gap));
        cuda::linear_forward(device.context(), x, w, bias, y);
        expect_close(y.download(), f.exact, biased_bound(f.scale, f.exact, s.in + 1, y.view()));
    }
}

TEST_P(CudaLinear, ForwardAddsAResidualThatMayBeTheResult) {
    Device device;
    for (const LinearSizes& s : kLinearSizes) {
        for (const DType residual_type : {DType::fp32, DType::bf16}) {
            SCOPED_TRACE(testing::Message() << s.n << " x " << s.in << " x " << s.out << " + "
                                            << name_of(residual_type));
            const Forward f(host, s, in_type());
            const auto residual = random_with_gap(s.n, s.out, residual_type, s.gap, 4);
            Matrix exact = f.exact, scale = f.scale;
            for (int64_t row = 0; row < s.n; ++row) {
                for (int64_t col = 0; col < s.out; ++col) {
                    exact.set(row, col, exact.get(row, col) + residual.get(row, col));
                    scale.set(row, col, scale.get(row, col) + std::abs(residual.get(row, col)));
                }
            }
            const DeviceMatrix y(device, Matrix(s.n, s.out, out_type(), s.gap + 8));
            // Two types: the product is rounded on its way through the scratch.
            const auto once = sum_bound(scale, exact, s.in + 2, out_type());
            const bool through_scratch = residual_type != out_type();
            const auto bound = [&](int64_t row, int64_t col) {
                const double product = std::abs(f.exact.get(row, col));
                return once(row, col) * (1 + unit_roundoff(out_type())) +
                       rounded_early(out_type(), y.view(), 2) * (1 + product) +
                       (through_scratch ? 1.02 * unit_roundoff(out_type()) * product : 0.0);
            };
            const DeviceMatrix x(device, f.x), w(device, f.w), bias(device, f.bias);
            const DeviceMatrix r(device, residual), scratch(device, Matrix(s.n, s.out, out_type()));
            cuda::linear_add_forward(device.context(), x, w, bias, r, scratch, y);
            expect_close(y.download(), exact, bound);
            if (through_scratch) continue;
            cuda::linear_add_forward(device.context(), x, w, bias, r, scratch, r);
            expect_close(r.download(), exact, bound);
        }
    }
}

TEST_P(CudaLinearOfType, ForwardTakesGeluAndKeepsWhatItTakesItOf) {
    Device device;
    const DType type = GetParam();
    for (const LinearSizes& s : kLinearSizes) {
        SCOPED_TRACE(testing::Message() << s.n << " x " << s.in << " x " << s.out);
        const Forward f(host, s, type);
        Matrix exact(s.n, s.out, DType::fp64);
        reference::activation_forward(host, Activation::gelu_tanh, f.exact, exact);
        const DeviceMatrix x(device, f.x), w(device, f.w), bias(device, f.bias);
        const DeviceMatrix before(device, Matrix(s.n, s.out, type, s.gap));
        const DeviceMatrix y(device, Matrix(s.n, s.out, type, s.gap));
        cuda::linear_gelu_forward(device.context(), x, w, bias, before, y);
        const auto before_bound = biased_bound(f.scale, f.exact, s.in + 1, before.view());
        expect_close(before.download(), f.exact, before_bound);
        expect_close(y.download(), exact, [&](int64_t row, int64_t col) {
            const double v = std::abs(f.exact.get(row, col));
            return kSteepest * before_bound(row, col) +
                   activation_error(Activation::gelu_tanh, v) *
                       (std::abs(exact.get(row, col)) + kEps32) +
                   gelu_error(type) * v +
                   unit_roundoff(type) * std::abs(exact.get(row, col)) * 1.02;
        });
    }
}

TEST_P(CudaLinear, InputGradientAgreesWithTheReference) {
    Device device;
    for (const LinearSizes& s : kLinearSizes) {
        SCOPED_TRACE(testing::Message() << s.n << " x " << s.in << " x " << s.out);
        const auto dy = random_with_gap(s.n, s.out, in_type(), s.gap, 1);
        const auto w = random_with_gap(s.out, s.in, in_type(), s.gap, 2);
        Matrix exact(s.n, s.in, DType::fp64), scale(s.n, s.in, DType::fp64);
        reference::linear_backward_input(host, dy, w, exact);
        reference::linear_backward_input(host, dy.magnitude(), w.magnitude(), scale);
        const DeviceMatrix ddy(device, dy), dw(device, w);
        const DeviceMatrix dx(device, Matrix(s.n, s.in, out_type(), s.gap));
        cuda::linear_backward_input(device.context(), ddy, dw, dx);
        expect_close(dx.download(), exact, sum_bound(scale, exact, s.out, out_type()));
    }
}

TEST_P(CudaLinearOfType, InputGradientGoesThroughGelu) {
    Device device;
    const DType type = GetParam();
    for (const LinearSizes& s : kLinearSizes) {
        SCOPED_TRACE(testing::Message() << s.n << " x " << s.in << " x " << s.out);
        const auto dy = random_with_gap(s.n, s.out, type, s.gap, 1);
        const auto w = random_with_gap(s.out, s.in, type, s.gap, 2);
        const auto before = random_with_gap(s.n, s.in, type, s.gap, 3, -4.0, 4.0);
        Matrix product(s.n, s.in, DType::fp64), scale(s.n, s.in, DType::fp64);
        reference::linear_backward_input(host, dy, w, product);
        reference::linear_backward_input(host, dy.magnitude(), w.magnitude(), scale);
        Matrix exact(s.n, s.in, DType::fp64);
        reference::activation_backward(host, Activation::gelu_tanh, product, before, exact);
        const DeviceMatrix ddy(device, dy), dw(device, w), dbefore(device, before);
        const DeviceMatrix dx(device, Matrix(s.n, s.in, type, s.gap));
        cuda::linear_gelu_backward_input(device.context(), ddy, dw, dbefore, dx);
        // The product's error and, where GELU is a second kernel, its rounding; then that of gelu',
        // with the library's tanh (1 + |v|) 2^-10: s (1 - s) has twice the error of s.
        const auto product_bound = sum_bound(scale, product, s.out, type);
        expect_close(dx.download(), exact, [&](int64_t row, int64_t col) {
            const double v = before.get(row, col);
            return kSteepest * product_bound(row, col) +
                   (activation_slope_error(v) + 2 * (1 + std::abs(v)) * gelu_error(type)) *
                       (std::abs(product.get(row, col)) + product_bound(row, col)) +
                   unit_roundoff(type) * std::abs(exact.get(row, col)) * 1.02;
        });
    }
}

TEST_P(CudaLinearOfType, WeightGradientAgreesWithTheReferenceAndAccumulates) {
    Device device;
    for (const LinearSizes& s : kLinearSizes) {
        for (const bool accumulate : {false, true}) {
            SCOPED_TRACE(testing::Message()
                         << s.n << " x " << s.in << " x " << s.out << accumulate);
            const auto dy = random_with_gap(s.n, s.out, GetParam(), s.gap, 1);
            const auto x = random_with_gap(s.n, s.in, GetParam(), s.gap, 2);
            const Matrix dw = accumulate ? random_with_gap(s.out, s.in, DType::fp32, s.gap, 3)
                                         : Matrix(s.out, s.in, DType::fp32, s.gap);
            const Matrix dbias = accumulate ? random_with_gap(1, s.out, DType::fp32, s.gap, 4)
                                            : Matrix(1, s.out, DType::fp32, s.gap);
            auto exact = dw.as(DType::fp64), exact_bias = dbias.as(DType::fp64);
            auto scale = dw.magnitude(), scale_bias = dbias.magnitude();
            reference::linear_backward_weight(host, dy, x, exact, exact_bias, accumulate);
            reference::linear_backward_weight(host, dy.magnitude(), x.magnitude(), scale,
                                              scale_bias, accumulate);
            const DeviceMatrix ddy(device, dy), dx(device, x), ddw(device, dw), ddb(device, dbias);
            cuda::linear_backward_weight(device.context(), ddy, dx, ddw, ddb, accumulate);
            expect_close(ddw.download(), exact, sum_bound(scale, exact, s.n + 1, DType::fp32));
            expect_close(ddb.download(), exact_bias,
                         sum_bound(scale_bias, exact_bias, s.n + 1, DType::fp32));
            const DeviceMatrix again(device, dw);
            cuda::linear_backward_weight(device.context(), ddy, dx, again, {}, accumulate);
            EXPECT_TRUE(again.download().same_bits(ddw.download())) << "without dbias";
            const DeviceMatrix alone(device, dbias);
            cuda::linear_backward_weight(device.context(), ddy, ConstTensor(dx).column_range(0, 0),
                                         Tensor(again).column_range(0, 0), alone, accumulate);
            EXPECT_TRUE(alone.download().same_bits(ddb.download())) << "dbias alone";
        }
    }
}

std::string name_of_linear(const testing::TestParamInfo<Types>& info) {
    return std::string(name_of(std::get<0>(info.param))) + "_to_" +
           name_of(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Types, CudaLinear,
                         testing::Combine(testing::Values(DType::fp32, DType::bf16),
                                          testing::Values(DType::fp32, DType::bf16)),
                         name_of_linear);

INSTANTIATE_TEST_SUITE_P(Types, CudaLinearOfType, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace vocabpipe::kernels::test

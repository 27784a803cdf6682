// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include "kernels/reference/operators.hpp"
#include "tests/kernels/activations.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "tests/kernels/cuda/sums.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct GatedSizes {
    int64_t n, f;
    int64_t gap;
};
const GatedSizes kGatedSizes[] = {{1, 1, 3},  {3, 17, 3}, {9, 129, 3},
                                  {5, 64, 8}, {6, 40, 0}, {1, 24, 0}};

class CudaGated : public OnDeviceWithParam<std::tuple<DType, Activation>> {
protected:
    DType type() const { return std::get<0>(GetParam()); }
    Activation activation() const { return std::get<1>(GetParam()); }
    Context host{{.threads = 1, .poll = {}}};  ///< for the reference kernels
};

TEST_P(CudaGated, ForwardAgreesWithTheReference) {
    Device device;
    for (const auto& [n, f, gap] : kGatedSizes) {
        SCOPED_TRACE(testing::Message() << n << " x " << f);
        const auto gate_up = random_with_gap(n, 2 * f, type(), gap, 1, -8.0, 8.0);
        Matrix exact(n, f, DType::fp64);
        reference::gated_forward(host, activation(), gate_up, exact);
        const DeviceMatrix in(device, gate_up), y(device, Matrix(n, f, type(), gap));
        cuda::gated_forward(device.context(), activation(), in, y);
        expect_close(y.download(), exact, [&](int64_t row, int64_t col) {
            const double value = std::abs(exact.get(row, col));
            return (activation_error(activation(), gate_up.get(row, col)) + 2 * kEps32 +
                    unit_roundoff(type()) * 1.01) *
                       value +
                   1e-13;
        });
    }
}

TEST_P(CudaGated, GradientsAgreeWithTheReference) {
    Device device;
    for (const auto& [n, f, gap] : kGatedSizes) {
        SCOPED_TRACE(testing::Message() << n << " x " << f);
        const int64_t half = f;
        const auto gate_up = random_with_gap(n, 2 * f, type(), gap, 1, -8.0, 8.0);
        const auto dy = random_with_gap(n, f, type(), gap, 2);
        Matrix exact(n, 2 * f, DType::fp64);
        reference::gated_backward(host, activation(), dy, gate_up, exact);
        const DeviceMatrix in(device, gate_up), ddy(device, dy);
        const DeviceMatrix dgate_up(device, Matrix(n, 2 * f, type(), gap));
        cuda::gated_backward(device.context(), activation(), ddy, in, dgate_up);
        expect_close(dgate_up.download(), exact, [&](int64_t row, int64_t col) {
            const double value = std::abs(exact.get(row, col));
            const double gate = gate_up.get(row, col % half);
            const double up = std::abs(gate_up.get(row, half + col % half));
            const double error =
                col < half ? activation_slope_error(gate) * up
                           : (activation_error(activation(), gate) + 2 * kEps32) * value + 1e-13;
            return error + unit_roundoff(type()) * value * 1.01;
        });
    }
}

TEST_P(CudaGated, StaysFiniteFarFromZero) {
    Device device;
    Matrix gate_up(1, 4, type(), 0);
    const double values[] = {-100.0, 100.0, 2.0, 2.0};
    for (int64_t i = 0; i < 4; ++i) gate_up.set(0, i, values[i]);
    const DeviceMatrix in(device, gate_up), dy(device, Matrix::random(1, 2, type(), 1, 1.0, 1.5));
    const DeviceMatrix y(device, Matrix(1, 2, type())), dgate_up(device, Matrix(1, 4, type()));
    cuda::gated_forward(device.context(), activation(), in, y);
    cuda::gated_backward(device.context(), activation(), dy, in, dgate_up);
    EXPECT_EQ(y.download().get(0, 0), 0.0);
    EXPECT_EQ(y.download().get(0, 1), 200.0);
    const Matrix gradients = dgate_up.download(), gradient = dy.download();
    EXPECT_EQ(gradients.get(0, 0), 0.0);
    EXPECT_EQ(gradients.get(0, 1), 2 * gradient.get(0, 1));
    EXPECT_EQ(gradients.get(0, 2), 0.0);
    EXPECT_NEAR(gradients.get(0, 3), 100 * gradient.get(0, 1), 200 * unit_roundoff(type()));
}

std::string name_of_gated(const testing::TestParamInfo<std::tuple<DType, Activation>>& info) {
    return std::string(name_of(std::get<0>(info.param))) + "_" + name_of(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Types, CudaGated,
                         testing::Combine(testing::Values(DType::fp32, DType::bf16),
                                          testing::ValuesIn(kActivations)),
                         name_of_gated);

}  // namespace
}  // namespace vocabpipe::kernels::test

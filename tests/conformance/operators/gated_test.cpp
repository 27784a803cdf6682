// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct GatedSizes {
    int64_t n, f, gap;
};
const GatedSizes kGatedSizes[] = {{1, 1, 3},  {3, 17, 3}, {17, 129, 3}, {64, 300, 3},
                                  {5, 64, 8}, {6, 40, 0}, {1, 24, 0}};

class Gated : public OperatorTest<DType, Activation> {
protected:
    [[nodiscard]] DType type() const { return parameter<1>(); }
    [[nodiscard]] Activation activation() const { return parameter<2>(); }
    /// A value of the activation times a factor. The reference's GELU cancels in 1 + tanh: 2^-53
    /// |x|.
    [[nodiscard]] double product_error(double gate, double exact) const {
        return (activation_error(activation(), gate) + 2 * kEps32 + unit_roundoff(type()) * 1.01) *
                   std::abs(exact) +
               1e-13;
    }
};

TEST_P(Gated, ForwardAgreesWithTheReference) {
    for (const auto& [n, f, gap] : kGatedSizes) {
        SCOPED_TRACE(testing::Message() << n << " x " << f);
        const auto gate_up = random_with_gap(n, 2 * f, type(), gap, 1, -8.0, 8.0);
        Matrix exact(n, f, DType::fp64);
        reference::gated_forward(host, activation(), gate_up, exact);
        const Uploaded in = up(gate_up), y = poison(n, f, type(), gap);
        const Matrix result = with_any_threads([&](Context& ctx) {
            ops().gated_forward(ctx, activation(), in, y);
            return y.download();
        });
        expect_close(result, exact, [&](int64_t row, int64_t col) {
            return product_error(gate_up.get(row, col), exact.get(row, col));
        });
    }
}

TEST_P(Gated, GradientsAgreeWithTheReference) {
    for (const GatedSizes& s : kGatedSizes) {
        SCOPED_TRACE(testing::Message() << s.n << " x " << s.f);
        const auto gate_up = random_with_gap(s.n, 2 * s.f, type(), s.gap, 1, -8.0, 8.0);
        const auto dy = random_with_gap(s.n, s.f, type(), s.gap, 2);
        Matrix exact(s.n, 2 * s.f, DType::fp64);
        reference::gated_backward(host, activation(), dy, gate_up, exact);
        const Uploaded in = up(gate_up), gradient = up(dy);
        const Uploaded dgate_up = poison(s.n, 2 * s.f, type(), s.gap);
        const Matrix result = with_any_threads([&](Context& ctx) {
            ops().gated_backward(ctx, activation(), gradient, in, dgate_up);
            return dgate_up.download();
        });
        expect_close(result, exact, [&](int64_t row, int64_t col) {
            const double value = exact.get(row, col);
            if (col >= s.f) return product_error(gate_up.get(row, col - s.f), value);
            const double factor = std::abs(dy.get(row, col) * gate_up.get(row, s.f + col));
            return (activation_slope_error(gate_up.get(row, col)) + 2 * kEps32) * factor +
                   unit_roundoff(type()) * std::abs(value) * 1.01;
        });
    }
}

TEST_P(Gated, StaysFiniteFarFromZero) {
    Matrix gate_up(1, 4, type(), 0);
    const double values[] = {-100.0, 100.0, 2.0, 2.0};
    for (int64_t i = 0; i < 4; ++i) gate_up.set(0, i, values[i]);
    const Matrix gradient = Matrix::random(1, 2, type(), 1, 1.0, 1.5);
    const Uploaded in = up(gate_up), dy = up(gradient);
    const Uploaded y = poison(1, 2, type()), dgate_up = poison(1, 4, type());
    ops().gated_forward(ctx(), activation(), in, y);
    ops().gated_backward(ctx(), activation(), dy, in, dgate_up);
    constexpr double kSubnormal = 0x1p-126;  // of what the reference alone keeps
    EXPECT_NEAR(y.download().get(0, 0), 0.0, kSubnormal);
    EXPECT_EQ(y.download().get(0, 1), 200.0);
    const Matrix gradients = dgate_up.download();
    EXPECT_NEAR(gradients.get(0, 0), 0.0, kSubnormal);
    EXPECT_EQ(gradients.get(0, 1), 2 * gradient.get(0, 1));
    EXPECT_NEAR(gradients.get(0, 2), 0.0, kSubnormal);
    EXPECT_NEAR(gradients.get(0, 3), 100 * gradient.get(0, 1), 200 * unit_roundoff(type()));
}

INSTANTIATE_TEST_SUITE_P(Devices, Gated,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes,
                                          testing::ValuesIn(kActivations)),
                         kNames);

using GatedArguments = OperatorTest<>;

TEST_P(GatedArguments, AGateNeedsItsFactor) {
    const Uploaded gate = poison(2, 4, DType::fp32), y = poison(2, 4, DType::fp32);
    EXPECT_THROW(ops().gated_forward(ctx(), Activation::silu, gate, y), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, GatedArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

TEST(ReferenceGated, GradientsAreThoseOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    for (const Activation activation : kActivations) {
        auto gate_up = Matrix::random(3, 20, DType::fp64, 1, -4.0, 4.0);
        const auto dy = Matrix::random(3, 10, DType::fp64, 2);
        Matrix dgate_up(3, 20, DType::fp64);
        reference::gated_backward(ctx, activation, dy, gate_up, dgate_up);
        const auto loss = [&] {
            Matrix y(3, 10, DType::fp64);
            reference::gated_forward(ctx, activation, gate_up, y);
            return dot(y, dy);
        };
        expect_close(dgate_up, numeric_gradient(gate_up, loss),
                     [](int64_t, int64_t) { return kDifferenceBound; });
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test

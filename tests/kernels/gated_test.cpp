// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <gtest/gtest.h>

#include "kernels/reference/operators.hpp"
#include "tests/kernels/activations.hpp"
#include "tests/kernels/matrix.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct Sizes {
    int64_t n, f;
};

class GatedOfType : public testing::TestWithParam<DType> {
protected:
    Context ctx{{.threads = 1, .poll = {}}};
};

TEST_P(GatedOfType, AgreesWithTheReferenceInBothDirections) {
    const DType type = GetParam();
    for (const Activation activation : kActivations) {
        for (const Sizes& sizes : {Sizes{1, 1}, {3, 17}, {17, 129}, {64, 300}}) {
            const int64_t n = sizes.n, f = sizes.f;
            SCOPED_TRACE(testing::Message() << name_of(activation) << ": " << f);
            const auto gate_up = Matrix::random(n, 2 * f, type, 1, -8.0, 8.0);
            const auto dy = Matrix::random(n, f, type, 2);
            Matrix y(n, f, type), dgate_up(n, 2 * f, type);
            Matrix exact(n, f, DType::fp64), exact_gradient(n, 2 * f, DType::fp64);
            host::gated_forward(ctx, activation, gate_up, y);
            host::gated_backward(ctx, activation, dy, gate_up, dgate_up);
            reference::gated_forward(ctx, activation, gate_up, exact);
            reference::gated_backward(ctx, activation, dy, gate_up, exact_gradient);
            // Then two products. The reference's GELU cancels in 1 + tanh: 2^-53 |x|.
            const auto value_error = [&](int64_t row, int64_t col, double result) {
                return (activation_error(activation, gate_up.get(row, col)) + 4 * kEps32 +
                        unit_roundoff(type) * 1.01) *
                           std::abs(result) +
                       1e-13;
            };
            expect_close(y, exact, [&](int64_t row, int64_t col) {
                return value_error(row, col, exact.get(row, col));
            });
            expect_close(dgate_up, exact_gradient, [&](int64_t row, int64_t col) {
                const double result = exact_gradient.get(row, col);
                if (col >= f) return value_error(row, col - f, result);
                const double factor = std::abs(dy.get(row, col) * gate_up.get(row, f + col));
                return (activation_slope_error(gate_up.get(row, col)) + 2 * kEps32) * factor +
                       unit_roundoff(type) * std::abs(result) * 1.01;
            });

            Context two({.threads = 2, .poll = {}});
            Matrix y2(n, f, type), dgate_up2(n, 2 * f, type);
            host::gated_forward(two, activation, gate_up, y2);
            host::gated_backward(two, activation, dy, gate_up, dgate_up2);
            EXPECT_TRUE(y2.same_bits(y));
            EXPECT_TRUE(dgate_up2.same_bits(dgate_up));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, GatedOfType, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

TEST(Gated, RefusesAGateWithoutItsFactor) {
    Context ctx({.threads = 1, .poll = {}});
    Matrix gate(2, 4, DType::fp32), y(2, 4, DType::fp32);
    EXPECT_THROW(host::gated_forward(ctx, Activation::silu, gate, y), UsageError);
}

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

// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct ElementSizes {
    int64_t n, h, gap;
};
const ElementSizes kElementSizes[] = {{1, 1, 3},  {3, 17, 3}, {17, 129, 3}, {5, 64, 8},
                                      {6, 40, 0}, {1, 24, 0}, {64, 1000, 3}};

class Elementwise : public OperatorTest<DType, DType> {
protected:
    [[nodiscard]] DType first() const { return parameter<1>(); }
    [[nodiscard]] DType second() const { return parameter<2>(); }
};

TEST_P(Elementwise, AddRoundsTheExactSumAndMayOverwriteAnOperand) {
    for (const auto& [n, h, gap] : kElementSizes) {
        for (const DType type : {DType::fp32, DType::bf16}) {
            SCOPED_TRACE(testing::Message() << n << " x " << h << " -> " << name_of(type));
            const auto a = random_with_gap(n, h, first(), gap, 1);
            const auto b = random_with_gap(n, h, second(), gap, 2);
            const Uploaded da = up(a), db = up(b), out = poison(n, h, type, gap);
            const Matrix result = with_any_threads([&](Context& ctx) {
                ops().add(ctx, da, db, out);
                return out.download();
            });
            Matrix exact(n, h, DType::fp64);
            reference::add(host, a, b, exact);
            // rounded to fp32 and then to out's type
            expect_close(result, exact, [&](int64_t row, int64_t col) {
                return std::abs(exact.get(row, col)) * (kEps32 + unit_roundoff(type));
            });
            if (first() == type) {
                ops().add(ctx(), da, db, da);
                EXPECT_TRUE(da.download().same_bits(result)) << "in place of a";
            } else if (second() == type) {
                ops().add(ctx(), da, db, db);
                EXPECT_TRUE(db.download().same_bits(result)) << "in place of b";
            }
        }
    }
}

TEST_P(Elementwise, AddRepeatsARowOfStrideZero) {
    for (const int64_t gap : {3, 8}) {
        const auto a = random_with_gap(6, 16, first(), gap, 1);
        const auto row = random_with_gap(1, 16, second(), gap, 2);
        const Uploaded da = up(a), drow = up(row), out = poison(6, 16, DType::fp32);
        const ConstTensor everywhere(drow.view().data, 6, 16, 0, second());
        ops().add(ctx(), da, everywhere, out);
        const Matrix result = out.download();
        for (int64_t i = 0; i < 96; ++i) {
            EXPECT_NEAR(result.get(i / 16, i % 16), a.get(i / 16, i % 16) + row.get(0, i % 16),
                        2 * kEps32);
        }
    }
}

TEST_P(Elementwise, ConvertGivesTheBitsOfTheReference) {
    for (const auto& [n, h, gap] : kElementSizes) {
        SCOPED_TRACE(testing::Message() << n << " x " << h);
        const auto from = random_with_gap(n, h, first(), gap, 1, -1e4, 1e4);
        const Uploaded in = up(from), to = poison(n, h, second(), gap);
        Matrix exact(n, h, second(), gap);
        reference::convert(host, from, exact);
        const Matrix result = with_any_threads([&](Context& ctx) {
            ops().convert(ctx, in, to);
            return to.download();
        });
        EXPECT_TRUE(result.same_bits(exact));
        EXPECT_TRUE(result.gaps_are_intact());
    }
}

TEST_P(Elementwise, ActivationsAgreeWithTheReferenceInBothDirections) {
    const DType in = first(), out = second();
    for (const Activation activation : kActivations) {
        for (const auto& [n, h, gap] : kElementSizes) {
            SCOPED_TRACE(testing::Message() << name_of(activation) << ": " << n << " x " << h);
            const auto x = random_with_gap(n, h, in, gap, 1, -8.0, 8.0);
            const auto dy = random_with_gap(n, h, in, gap, 2);
            Matrix exact_y(n, h, DType::fp64), exact_dx(n, h, DType::fp64);
            reference::activation_forward(host, activation, x, exact_y);
            reference::activation_backward(host, activation, dy, x, exact_dx);
            const Uploaded ddy = up(dy), dx_in = up(x);
            const Uploaded y = poison(n, h, out, gap), dx = poison(n, h, out, gap);
            const Matrix value = with_any_threads([&](Context& ctx) {
                ops().activation_forward(ctx, activation, dx_in, y);
                return y.download();
            });
            const Matrix gradient = with_any_threads([&](Context& ctx) {
                ops().activation_backward(ctx, activation, ddy, dx_in, dx);
                return dx.download();
            });
            const double roundoff = unit_roundoff(out) * 1.01;
            expect_close(value, exact_y, [&](int64_t row, int64_t col) {
                // The reference cancels in 1 + tanh: 2^-53 |x|.
                const double size = std::abs(exact_y.get(row, col));
                return (activation_error(activation, x.get(row, col)) + roundoff) * size + 1e-14;
            });
            expect_close(gradient, exact_dx, [&](int64_t row, int64_t col) {
                return activation_slope_error(x.get(row, col)) +
                       roundoff * std::abs(exact_dx.get(row, col));
            });
            if (in != out) continue;
            ops().activation_backward(ctx(), activation, ddy, dx_in, ddy);
            EXPECT_TRUE(ddy.download().same_bits(gradient)) << "in place of dy";
            ops().activation_forward(ctx(), activation, dx_in, dx_in);
            EXPECT_TRUE(dx_in.download().same_bits(value)) << "in place of x";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, Elementwise,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes, kTypes),
                         kNames);

using Scale = TypedOperatorTest;

TEST_P(Scale, RoundsTheExactProductAndMayBeInPlace) {
    for (const float factor : {0.3F, 24.0F / 7.0F}) {
        for (const auto& [n, h, gap] : kElementSizes) {
            SCOPED_TRACE(testing::Message() << n << " x " << h);
            const auto x = random_with_gap(n, h, type(), gap, 1);
            const Uploaded in = up(x), y = poison(n, h, type(), gap);
            const Matrix result = with_any_threads([&](Context& ctx) {
                ops().scale(ctx, in, factor, y);
                return y.download();
            });
            Matrix exact(n, h, DType::fp64);
            reference::scale(host, x, factor, exact);
            expect_close(result, exact, [&](int64_t row, int64_t col) {
                return std::abs(exact.get(row, col)) * (kEps32 + unit_roundoff(type()));
            });
            ops().scale(ctx(), in, factor, in);
            EXPECT_TRUE(in.download().same_bits(result));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, Scale,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

using Elements = OperatorTest<>;

TEST_P(Elements, InfinityAndNanSurviveRounding) {
    Matrix from(1, 8, DType::fp32, 0);
    const double values[] = {INFINITY, -INFINITY, NAN, 0.0, -0.0, 3.4e38, 1.0 + 0x1p-8, 1e-40};
    for (int64_t i = 0; i < 8; ++i) from.set(0, i, values[i]);
    const Uploaded in = up(from), to = poison(1, 8, DType::bf16, 0);
    ops().convert(ctx(), in, to);
    const Matrix result = to.download();
    EXPECT_EQ(result.get(0, 0), INFINITY);
    EXPECT_EQ(result.get(0, 1), -INFINITY);
    EXPECT_TRUE(std::isnan(result.get(0, 2)));
    EXPECT_EQ(result.get(0, 3), 0.0);
    EXPECT_TRUE(std::signbit(result.get(0, 4)));
    EXPECT_EQ(result.get(0, 5), INFINITY);
    EXPECT_EQ(result.get(0, 6), 1.0);       // tie, to even
    EXPECT_EQ(result.get(0, 7), 0x1p-133);  // the smallest there is
}

TEST_P(Elements, ZeroAndCopyTouchTheirBytesOnly) {
    const auto from = up(std::vector<uint8_t>{1, 2, 3, 4, 5, 6, 7});
    const auto to = up(std::vector<uint8_t>(7, 9));
    ops().copy(ctx(), std::as_bytes(from.span()).subspan(2, 3),
               std::as_writable_bytes(to.span()).subspan(1, 3));
    ops().set_zero(ctx(), std::as_writable_bytes(to.span()).subspan(5, 1));
    ops().set_zero(ctx(), {});
    ops().copy(ctx(), {}, {});
    EXPECT_EQ(to.download(), (std::vector<uint8_t>{9, 3, 4, 5, 9, 0, 9}));
}

INSTANTIATE_TEST_SUITE_P(Devices, Elements,
                         testing::Combine(testing::ValuesIn(devices_under_test())), kNames);

using ElementArguments = OperatorTest<>;

TEST_P(ElementArguments, TensorsAreNotFp64) {
    const Uploaded a = poison(2, 2, DType::fp64), b = poison(2, 2, DType::fp64);
    EXPECT_THROW(ops().convert(ctx(), a, b), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, ElementArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

TEST(ReferenceActivation, GradientIsThatOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    for (const Activation activation : kActivations) {
        auto x = Matrix::random(3, 20, DType::fp64, 1, -4.0, 4.0);
        const auto dy = Matrix::random(3, 20, DType::fp64, 2);
        Matrix dx(3, 20, DType::fp64);
        reference::activation_backward(ctx, activation, dy, x, dx);
        const auto loss = [&] {
            Matrix y(3, 20, DType::fp64);
            reference::activation_forward(ctx, activation, x, y);
            return dot(y, dy);
        };
        expect_close(dx, numeric_gradient(x, loss),
                     [](int64_t, int64_t) { return kDifferenceBound; });
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test

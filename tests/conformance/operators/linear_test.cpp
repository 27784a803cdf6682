// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct LinearSizes {
    int64_t n, in, out;
    int64_t gap;  ///< 3: nothing is aligned; 8: rows are, where their length is a multiple of 8
};
const LinearSizes kLinearSizes[] = {{1, 1, 1, 3},     {1, 17, 3, 3},    {3, 1, 17, 3},
                                    {17, 3, 1, 3},    {17, 33, 9, 3},   {16, 24, 40, 8},
                                    {70, 64, 16, 8},  {8, 16, 72, 0},   {64, 64, 64, 3},
                                    {129, 65, 40, 3}, {40, 129, 257, 3}};

/// |gelu'| < 1.13.
constexpr double kSteepest = 1.13;

using LinearBound = std::function<double(int64_t, int64_t)>;

/// x, w and a bias, the exact product and the product of magnitudes.
struct LinearProblem {
    Matrix x, w, bias, exact, scale;

    LinearProblem(Context& ctx, const LinearSizes& s, DType type, bool with_bias = true)
        : x(random_with_gap(s.n, s.in, type, s.gap, 1)),
          w(random_with_gap(s.out, s.in, type, s.gap, 2)),
          bias(random_with_gap(1, s.out, type, s.gap, 3)),
          exact(s.n, s.out, DType::fp64),
          scale(s.n, s.out, DType::fp64) {
        const Matrix bias_magnitude = bias.magnitude();
        const auto some = [&](const Matrix& m) { return with_bias ? m.view() : ConstTensor{}; };
        reference::linear_forward(ctx, x, w, some(bias), exact);
        reference::linear_forward(ctx, x.magnitude(), w.magnitude(), some(bias_magnitude), scale);
    }
    /// A sum of `terms` products, to which y = x w adds `addends` numbers more.
    [[nodiscard]] LinearBound bound(const TestDevice& device, int64_t terms, const ConstTensor& y,
                                    int addends) const {
        return [this, once = sum_bound(scale, exact, terms, y.dtype),
                early = device.early_rounding(y, addends)](int64_t row, int64_t col) {
            return once(row, col) + early * (1 + std::abs(exact.get(row, col)));
        };
    }
};

class Linear : public OperatorTest<DType, DType> {
protected:
    [[nodiscard]] DType in_type() const { return parameter<1>(); }
    [[nodiscard]] DType out_type() const { return parameter<2>(); }
};
using LinearOfType = TypedOperatorTest;

testing::Message sizes_of(const LinearSizes& s) {
    return testing::Message() << s.n << " x " << s.in << " x " << s.out;
}

TEST_P(Linear, ForwardAgreesWithTheReference) {
    for (const LinearSizes& s : kLinearSizes) {
        for (const bool with_bias : {false, true}) {
            SCOPED_TRACE(sizes_of(s) << ", bias: " << with_bias);
            const LinearProblem f(host, s, in_type(), with_bias);
            const Uploaded bias = up(f.bias), y = poison(s.n, s.out, out_type(), s.gap);
            ops().linear_forward(ctx(), up(f.x), up(f.w),
                                 with_bias ? ConstTensor(bias) : ConstTensor{}, y);
            expect_close(y.download(), f.exact,
                         f.bound(device(), s.in + 1, y.view(), with_bias ? 1 : 0));
        }
    }
}

TEST_P(Linear, ForwardAddsAResidualThatMayBeTheResult) {
    for (const LinearSizes& s : kLinearSizes) {
        for (const DType residual_type : {DType::fp32, DType::bf16}) {
            SCOPED_TRACE(sizes_of(s) << " + " << name_of(residual_type));
            const LinearProblem f(host, s, in_type());
            const auto residual = random_with_gap(s.n, s.out, residual_type, s.gap, 4);
            Matrix exact = f.exact, scale = f.scale;
            for (int64_t row = 0; row < s.n; ++row) {
                for (int64_t col = 0; col < s.out; ++col) {
                    exact.set(row, col, exact.get(row, col) + residual.get(row, col));
                    scale.set(row, col, scale.get(row, col) + std::abs(residual.get(row, col)));
                }
            }
            const Uploaded y = poison(s.n, s.out, out_type(), s.gap + 8);
            // Where a device cannot add to the product, it is rounded on its way through the
            // scratch; CUDA's does so with two types.
            const auto once = sum_bound(scale, exact, s.in + 2, out_type());
            const bool through_scratch =
                residual_type != out_type() || device().adds_through_scratch();
            const auto bound = [&](int64_t row, int64_t col) {
                const double product = std::abs(f.exact.get(row, col));
                return once(row, col) * (1 + unit_roundoff(out_type())) +
                       device().early_rounding(y.view(), 2) * (1 + product) +
                       (through_scratch ? 1.02 * unit_roundoff(out_type()) * product : 0.0);
            };
            const Uploaded x = up(f.x), w = up(f.w), bias = up(f.bias), r = up(residual);
            const Uploaded scratch = poison(s.n, s.out, out_type());
            ops().linear_add_forward(ctx(), x, w, bias, r, scratch, y);
            expect_close(y.download(), exact, bound);
            if (residual_type != out_type()) continue;
            ops().linear_add_forward(ctx(), x, w, bias, r, scratch, r);
            expect_close(r.download(), exact, bound);
        }
    }
}

TEST_P(Linear, InputGradientAgreesWithTheReference) {
    for (const LinearSizes& s : kLinearSizes) {
        SCOPED_TRACE(sizes_of(s));
        const auto dy = random_with_gap(s.n, s.out, in_type(), s.gap, 1);
        const auto w = random_with_gap(s.out, s.in, in_type(), s.gap, 2);
        Matrix exact(s.n, s.in, DType::fp64), scale(s.n, s.in, DType::fp64);
        reference::linear_backward_input(host, dy, w, exact);
        reference::linear_backward_input(host, dy.magnitude(), w.magnitude(), scale);
        const Uploaded dx = poison(s.n, s.in, out_type(), s.gap);
        ops().linear_backward_input(ctx(), up(dy), up(w), dx);
        expect_close(dx.download(), exact, sum_bound(scale, exact, s.out, out_type()));
    }
}

TEST_P(LinearOfType, ForwardTakesGeluAndKeepsWhatItTakesItOf) {
    for (const LinearSizes& s : kLinearSizes) {
        SCOPED_TRACE(sizes_of(s));
        const LinearProblem f(host, s, type());
        Matrix exact(s.n, s.out, DType::fp64);
        reference::activation_forward(host, Activation::gelu_tanh, f.exact, exact);
        const Uploaded before = poison(s.n, s.out, type(), s.gap);
        const Uploaded y = poison(s.n, s.out, type(), s.gap);
        ops().linear_gelu_forward(ctx(), up(f.x), up(f.w), up(f.bias), before, y);
        const auto before_bound = f.bound(device(), s.in + 1, before.view(), 1);
        expect_close(before.download(), f.exact, before_bound);
        expect_close(y.download(), exact, [&](int64_t row, int64_t col) {
            const double v = std::abs(f.exact.get(row, col));
            return kSteepest * before_bound(row, col) +
                   activation_error(Activation::gelu_tanh, v) *
                       (std::abs(exact.get(row, col)) + kEps32) +
                   device().fused_gelu_error(type()) * v +
                   unit_roundoff(type()) * std::abs(exact.get(row, col)) * 1.02;
        });
    }
}

TEST_P(LinearOfType, InputGradientGoesThroughGelu) {
    for (const LinearSizes& s : kLinearSizes) {
        SCOPED_TRACE(sizes_of(s));
        const auto dy = random_with_gap(s.n, s.out, type(), s.gap, 1);
        const auto w = random_with_gap(s.out, s.in, type(), s.gap, 2);
        const auto before = random_with_gap(s.n, s.in, type(), s.gap, 3, -4.0, 4.0);
        Matrix product(s.n, s.in, DType::fp64), scale(s.n, s.in, DType::fp64);
        reference::linear_backward_input(host, dy, w, product);
        reference::linear_backward_input(host, dy.magnitude(), w.magnitude(), scale);
        Matrix exact(s.n, s.in, DType::fp64);
        reference::activation_backward(host, Activation::gelu_tanh, product, before, exact);
        const Uploaded dx = poison(s.n, s.in, type(), s.gap);
        ops().linear_gelu_backward_input(ctx(), up(dy), up(w), up(before), dx);
        // The product's error and, where GELU is a second kernel, its rounding; then that of gelu',
        // with a library's tanh (1 + |v|) 2^-10: s (1 - s) has twice the error of s.
        const auto product_bound = sum_bound(scale, product, s.out, type());
        expect_close(dx.download(), exact, [&](int64_t row, int64_t col) {
            const double v = before.get(row, col);
            return kSteepest * product_bound(row, col) +
                   (activation_slope_error(v) +
                    2 * (1 + std::abs(v)) * device().fused_gelu_error(type())) *
                       (std::abs(product.get(row, col)) + product_bound(row, col)) +
                   unit_roundoff(type()) * std::abs(exact.get(row, col)) * 1.02;
        });
    }
}

TEST_P(LinearOfType, WeightGradientAgreesWithTheReferenceAndAccumulates) {
    for (const LinearSizes& s : kLinearSizes) {
        for (const bool accumulate : {false, true}) {
            SCOPED_TRACE(sizes_of(s) << ", " << accumulate);
            const auto dy = random_with_gap(s.n, s.out, type(), s.gap, 1);
            const auto x = random_with_gap(s.n, s.in, type(), s.gap, 2);
            const Matrix dw = start_of_sum(s.out, s.in, accumulate, 3, s.gap);
            const Matrix dbias = start_of_sum(1, s.out, accumulate, 4, s.gap);
            auto exact = dw.as(DType::fp64), exact_bias = dbias.as(DType::fp64);
            auto scale = dw.magnitude(), scale_bias = dbias.magnitude();
            reference::linear_backward_weight(host, dy, x, exact, exact_bias, accumulate);
            reference::linear_backward_weight(host, dy.magnitude(), x.magnitude(), scale,
                                              scale_bias, accumulate);
            const Uploaded gradient = up(dy), in = up(x), of_w = up(dw), of_bias = up(dbias);
            const auto backward = ops().linear_backward_weight;
            backward(ctx(), gradient, in, of_w, of_bias, accumulate);
            expect_close(of_w.download(), exact, sum_bound(scale, exact, s.n + 1, DType::fp32));
            expect_close(of_bias.download(), exact_bias,
                         sum_bound(scale_bias, exact_bias, s.n + 1, DType::fp32));
            const Uploaded again = up(dw), alone = up(dbias);
            backward(ctx(), gradient, in, again, {}, accumulate);
            EXPECT_TRUE(again.download().same_bits(of_w.download())) << "without dbias";
            backward(ctx(), gradient, in.view().column_range(0, 0), again.view().column_range(0, 0),
                     alone, accumulate);
            EXPECT_TRUE(alone.download().same_bits(of_bias.download())) << "dbias alone";
        }
    }
}

TEST_P(LinearOfType, BiasGradientAddsUpAnyNumberOfRowsInAnyWorkspace) {
    for (const auto& [n, out, gap] :
         {std::array<int64_t, 3>{0, 5, 3}, {1, 1, 3}, {7, 300, 3}, {200, 40, 8}, {333, 9, 3}}) {
        for (const bool accumulate : {false, true}) {
            SCOPED_TRACE(testing::Message() << n << " x " << out << ", " << accumulate);
            const auto dy = random_with_gap(n, out, type(), gap, 1);
            const Matrix start = start_of_sum(1, out, accumulate, 2);
            auto exact = start.as(DType::fp64), scale = start.magnitude();
            const auto sum = [&](const Matrix& of, Tensor to) {
                reference::linear_backward_weight(host, of, of.view().column_range(0, 0),
                                                  Tensor(nullptr, of.cols(), 0, DType::fp64), to,
                                                  accumulate);
            };
            sum(dy, exact);
            sum(dy.magnitude(), scale);
            const Uploaded gradient = up(dy);
            const Tensor nothing(nullptr, out, 0, DType::fp32);
            for (Context* workspace : device().workspaces()) {
                const Uploaded dbias = up(start);
                ops().linear_backward_weight(*workspace, gradient,
                                             gradient.view().column_range(0, 0), nothing, dbias,
                                             accumulate);
                expect_close(dbias.download(), exact, sum_bound(scale, exact, n + 1, DType::fp32));
            }
        }
    }
}

/// Products without terms or without rows.
TEST_P(Linear, OfNothingIsZeroOrTheBiasAndLeavesAnAccumulatorAlone) {
    const Uploaded x = poison(3, 0, in_type()), w = poison(5, 0, in_type());
    const auto values = random_with_gap(1, 5, in_type(), 3, 1);
    const Uploaded bias = up(values), y = poison(3, 5, out_type());
    ops().linear_forward(ctx(), x, w, bias, y);
    const Matrix biased = y.download();
    Matrix expected(3, 5, DType::fp64);
    for (int64_t i = 0; i < 15; ++i) expected.set(i / 5, i % 5, values.get(0, i % 5));
    expect_close(biased, expected, [&](int64_t row, int64_t col) {
        return in_type() == out_type()
                   ? 0.0
                   : unit_roundoff(out_type()) * std::abs(expected.get(row, col));
    });
    const auto is_zero = [](const Uploaded& found) {
        const Matrix values = found.download();
        expect_close(values, values.mapped(DType::fp64, [](double) { return 0.0; }),
                     [](int64_t, int64_t) { return 0.0; });
    };
    ops().linear_forward(ctx(), x, w, {}, y);
    is_zero(y);
    const Uploaded dx = poison(3, 4, out_type());
    ops().linear_backward_input(ctx(), x, poison(0, 4, in_type()), dx);
    is_zero(dx);
    const Uploaded no_rows = poison(0, 4, in_type()), dw = poison(5, 4, DType::fp32);
    const Uploaded no_gradients = poison(0, 5, in_type());
    ops().linear_backward_weight(ctx(), no_gradients, no_rows, dw, {}, false);
    is_zero(dw);
    const Uploaded sum = up(Matrix::random(5, 4, DType::fp32, 2));
    const Matrix before = sum.download();
    ops().linear_backward_weight(ctx(), no_gradients, no_rows, sum, {}, true);
    EXPECT_TRUE(sum.download().same_bits(before));
    EXPECT_NO_THROW(ops().linear_forward(ctx(), no_rows, poison(5, 4, in_type()), bias,
                                         poison(0, 5, out_type())));
}

INSTANTIATE_TEST_SUITE_P(Devices, Linear,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes, kTypes),
                         kNames);
INSTANTIATE_TEST_SUITE_P(Devices, LinearOfType,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

using LinearBits = Linear;

TEST_P(LinearBits, AreTheSameForAnyThreads) {
    const int64_t n = 130, in = 257, out = 515;
    const Uploaded x = up(Matrix::random(n, in, in_type(), 1));
    const Uploaded dy = up(Matrix::random(n, out, in_type(), 2));
    const Uploaded w = up(Matrix::random(out, in, in_type(), 3));
    expect_same_bits_with_any_threads([&](Context& ctx) {
        const Uploaded y = poison(n, out, out_type()), dx = poison(n, in, out_type());
        const Uploaded dw = poison(out, in, DType::fp32), dbias = poison(1, out, DType::fp32);
        ops().linear_forward(ctx, x, w, {}, y);
        ops().linear_backward_input(ctx, dy, w, dx);
        ops().linear_backward_weight(ctx, dy, x, dw, dbias, false);
        return std::vector{y.download(), dx.download(), dw.download(), dbias.download()};
    });
}

INSTANTIATE_TEST_SUITE_P(Devices, LinearBits,
                         testing::Combine(testing::ValuesIn(product_devices()), kTypes, kTypes),
                         kNames);

using LinearArguments = OperatorTest<>;

TEST_P(LinearArguments, FitTogether) {
    const Uploaded x = poison(2, 3, DType::fp32), w = poison(4, 3, DType::fp32);
    const Uploaded y = poison(2, 4, DType::fp32), wrong = poison(4, 4, DType::fp32);
    const Uploaded half = poison(4, 3, DType::bf16);
    const auto forward = ops().linear_forward;
    EXPECT_THROW(forward(ctx(), x, wrong, {}, y), UsageError);
    EXPECT_THROW(forward(ctx(), x, half, {}, y), UsageError);
    EXPECT_THROW(forward(ctx(), x, w, {}, wrong), UsageError);
    EXPECT_THROW(forward(ctx(), x, w, poison(1, 3, DType::fp32), y), UsageError);
    EXPECT_THROW(ops().linear_backward_input(ctx(), y, wrong, x), UsageError);
    EXPECT_THROW(ops().linear_backward_weight(ctx(), y, x, half, {}, true), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, LinearArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

TEST(ReferenceLinear, GradientsAreThoseOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    const int64_t n = 5, in = 4, out = 3;
    auto x = Matrix::random(n, in, DType::fp64, 1);
    auto w = Matrix::random(out, in, DType::fp64, 2);
    auto bias = Matrix::random(1, out, DType::fp64, 3);
    const auto dy = Matrix::random(n, out, DType::fp64, 4);
    const auto loss = [&] {
        Matrix y(n, out, DType::fp64);
        reference::linear_forward(ctx, x, w, bias, y);
        return dot(y, dy);
    };
    Matrix dx(n, in, DType::fp64), dw(out, in, DType::fp64), dbias(1, out, DType::fp64);
    reference::linear_backward_input(ctx, dy, w, dx);
    reference::linear_backward_weight(ctx, dy, x, dw, dbias, false);
    const auto bound = [](int64_t, int64_t) { return kDifferenceBound; };
    expect_close(dx, numeric_gradient(x, loss), bound);
    expect_close(dw, numeric_gradient(w, loss), bound);
    expect_close(dbias, numeric_gradient(bias, loss), bound);
}

}  // namespace
}  // namespace vocabpipe::kernels::test

// SPDX-License-Identifier: Apache-2.0
// Losses of rows: cross-entropy and squared error, and their weighted sum.
#include <cmath>
#include <limits>
#include <random>

#include "kernels/host/operators.hpp"
#include "tests/conformance/operator_test.hpp"
#include "tests/conformance/random_numbers.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct LossSizes {
    int64_t rows, cols, stride, gap;
};
const LossSizes kLossSizes[] = {{1, 1, 1, 0},     {1, 10, 16, 3}, {7, 1, 16, 3},
                                {1, 1000, 1, 0},  {7, 10, 1, 3},  {5, 1000, 16, 3},
                                {70, 1000, 1, 8},  // worth two threads
                                {70, 10, 16, 0},  {0, 10, 16, 3}};
/// Magnitudes of the random numbers: usual ones, and such of which exp() would overflow.
const double kMagnitudes[] = {3, 1e4};

/// A token that no row reads: whoever does shows it.
constexpr float kUnread = std::numeric_limits<float>::quiet_NaN();

/// Weights of tokens; every fourth row's is negative.
std::vector<float> weights_of_rows(const LossSizes& of) {
    std::vector<float> weights(static_cast<size_t>(of.rows * of.stride), kUnread);
    for (int64_t i = 0; i < of.rows; ++i) {
        weights[static_cast<size_t>(i * of.stride)] =
            (i % 4 == 3 ? -0.1F : 0.1F) * static_cast<float>(1 + i % 7);
    }
    return weights;
}

class CrossEntropyOfRows : public TypedOperatorTest {
protected:
    /// Every third row but the first is ignored.
    [[nodiscard]] static std::vector<int32_t> labels_of_rows(const LossSizes& of) {
        std::mt19937 engine(5);
        std::uniform_int_distribution<int32_t> label(0, static_cast<int32_t>(of.cols) - 1);
        std::vector<int32_t> labels(static_cast<size_t>(of.rows * of.stride),
                                    std::numeric_limits<int32_t>::max());
        for (int64_t i = 0; i < of.rows; ++i) {
            labels[static_cast<size_t>(i * of.stride)] =
                i % 3 == 1 ? -1 - static_cast<int32_t>(i) : label(engine);
        }
        return labels;
    }
    /// Ignored rows are NaN.
    [[nodiscard]] Matrix logits_of(const LossSizes& of, const std::vector<int32_t>& labels,
                                   double magnitude) const {
        Matrix logits = random_with_gap(of.rows, of.cols, type(), of.gap, 1, -magnitude, magnitude);
        for (int64_t i = 0; i < of.rows; ++i) {
            if (labels[static_cast<size_t>(i * of.stride)] >= 0) continue;
            for (int64_t j = 0; j < of.cols; ++j) logits.set(i, j, NAN);
        }
        return logits;
    }
};

TEST_P(CrossEntropyOfRows, IsThatOfTheReferenceForLogitsOfAnySize) {
    for (const LossSizes& of : kLossSizes) {
        for (const double magnitude : kMagnitudes) {
            SCOPED_TRACE(testing::Message() << of.rows << ", " << of.cols << ", " << magnitude);
            const auto labels = labels_of_rows(of);
            const Matrix logits = logits_of(of, labels, magnitude);
            Matrix expected(of.rows, 1, DType::fp64);
            reference::cross_entropy_forward(host, logits, labels, of.stride, expected);
            const Uploaded z = up(logits);
            const auto on_device = up(labels);
            const Matrix actual = with_any_threads([&](Context& ctx) {
                const Uploaded losses = poison(of.rows, 1, DType::fp32, of.gap);
                ops().cross_entropy_forward(ctx, z, on_device, of.stride, losses);
                return losses.download();
            });
            // Sum: as many terms as columns; exponentials, logarithm and two additions.
            expect_close(actual, expected, [&](int64_t i, int64_t) {
                const bool exact = of.cols == 1 || labels[static_cast<size_t>(i * of.stride)] < 0;
                const auto terms = static_cast<double>(of.cols) + 16;
                return exact ? 0.0 : (terms + 4 * expected.get(i, 0)) * kEps32;
            });
        }
    }
}

TEST_P(CrossEntropyOfRows, GradientIsThatOfTheReferenceAndMayTakeThePlaceOfTheLogits) {
    for (const LossSizes& of : kLossSizes) {
        for (const double magnitude : kMagnitudes) {
            SCOPED_TRACE(testing::Message() << of.rows << ", " << of.cols << ", " << magnitude);
            const auto labels = labels_of_rows(of);
            const auto weights = weights_of_rows(of);
            const Matrix logits = logits_of(of, labels, magnitude);
            Matrix expected(of.rows, of.cols, DType::fp64);
            reference::cross_entropy_backward(host, logits.as(DType::fp64), labels, weights,
                                              of.stride, expected);
            const Uploaded z = up(logits);
            const auto on_device = up(labels);
            const auto factors = up(weights);
            const Matrix actual = with_any_threads([&](Context& ctx) {
                const Uploaded dlogits = poison(of.rows, of.cols, type(), of.gap);
                ops().cross_entropy_backward(ctx, z, on_device, factors, of.stride, dlogits);
                return dlogits.download();
            });
            expect_close(actual, expected, [&](int64_t i, int64_t j) {
                const auto at = static_cast<size_t>(i * of.stride);
                if (of.cols == 1 || labels[at] < 0) return 0.0;
                const double weight = std::abs(static_cast<double>(weights[at]));
                const double p = expected.get(i, j) / static_cast<double>(weights[at]) +
                                 (j == labels[at] ? 1 : 0);
                const double sum = (static_cast<double>(of.cols) + 16) * p;
                return weight * (sum + 2) * kEps32 +
                       unit_roundoff(type()) * std::abs(expected.get(i, j)) * 1.01;
            });
            ops().cross_entropy_backward(ctx(), z, on_device, factors, of.stride, z);
            EXPECT_TRUE(z.download().same_bits(actual)) << "in place of the logits";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, CrossEntropyOfRows,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

/// Targets (cols, rows stride).
std::vector<float> targets_of_rows(const LossSizes& of) {
    auto targets = random_numbers(of.cols * of.rows * of.stride, 4);
    for (size_t n = 0; n < targets.size(); ++n) {
        if (n % static_cast<size_t>(of.stride) != 0) targets[n] = kUnread;
    }
    return targets;
}

using SquaredErrorOfRows = TypedOperatorTest;

TEST_P(SquaredErrorOfRows, IsThatOfTheReference) {
    for (const LossSizes& of : kLossSizes) {
        for (const double magnitude : kMagnitudes) {
            SCOPED_TRACE(testing::Message() << of.rows << ", " << of.cols << ", " << magnitude);
            const auto targets = targets_of_rows(of);
            const Matrix x =
                random_with_gap(of.rows, of.cols, type(), of.gap, 1, -magnitude, magnitude);
            Matrix expected(of.rows, 1, DType::fp64);
            reference::squared_error_forward(host, x, targets, of.stride, expected);
            const Uploaded in = up(x);
            const auto on_device = up(targets);
            const Matrix actual = with_any_threads([&](Context& ctx) {
                const Uploaded losses = poison(of.rows, 1, DType::fp32, of.gap);
                ops().squared_error_forward(ctx, in, on_device, of.stride, losses);
                return losses.download();
            });
            // Terms of one sign, each of three roundings, added in any order and divided.
            expect_close(actual, expected, [&](int64_t i, int64_t) {
                return (static_cast<double>(of.cols) + 4) * kEps32 * expected.get(i, 0);
            });
        }
    }
}

TEST_P(SquaredErrorOfRows, GradientIsThatOfTheReferenceAndMayTakeThePlaceOfTheInput) {
    for (const LossSizes& of : kLossSizes) {
        SCOPED_TRACE(testing::Message() << of.rows << ", " << of.cols);
        const auto targets = targets_of_rows(of);
        const auto weights = weights_of_rows(of);
        const Matrix x = random_with_gap(of.rows, of.cols, type(), of.gap, 1);
        Matrix expected(of.rows, of.cols, DType::fp64);
        reference::squared_error_backward(host, x.as(DType::fp64), targets, weights, of.stride,
                                          expected);
        const Uploaded in = up(x);
        const auto on_device = up(targets);
        const auto factors = up(weights);
        const Matrix actual = with_any_threads([&](Context& ctx) {
            const Uploaded dx = poison(of.rows, of.cols, type(), of.gap);
            ops().squared_error_backward(ctx, in, on_device, factors, of.stride, dx);
            return dx.download();
        });
        // A difference, two factors, and a product.
        expect_close(actual, expected, [&](int64_t i, int64_t j) {
            return (4 * kEps32 + unit_roundoff(type())) * std::abs(expected.get(i, j));
        });
        ops().squared_error_backward(ctx(), in, on_device, factors, of.stride, in);
        EXPECT_TRUE(in.download().same_bits(actual)) << "in place of the input";
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, SquaredErrorOfRows,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

using WeightedLosses = OperatorTest<>;

TEST_P(WeightedLosses, AreAddedToTheTotalWithTheSameBitsEveryTime) {
    for (const int64_t rows : {0, 1, 7, 300, 5000}) {
        for (const int64_t stride : {1, 16}) {
            SCOPED_TRACE(testing::Message() << rows << " rows, stride " << stride);
            const auto losses = random_with_gap(rows, 1, DType::fp32, 2, 1, 0, 5);
            const auto weights = weights_of_rows({rows, 1, stride, 0});
            const Uploaded in = up(losses);
            const auto factors = up(weights);
            double expected = 2.5;
            reference::add_weighted_losses(host, losses, weights, stride, &expected);
            const auto total = [&](Context& ctx) {
                const auto sum = up(std::vector{2.5});
                ops().add_weighted_losses(ctx, in, factors, stride, sum.data());
                return sum.download()[0];
            };
            const double actual = total(ctx());
            EXPECT_NEAR(actual, expected, static_cast<double>(rows) * 0x1p-52 * expected);
            for (Context* other : device().threads()) EXPECT_EQ(total(*other), actual);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, WeightedLosses,
                         testing::Combine(testing::ValuesIn(devices_under_test())), kNames);

using RowLossArguments = OperatorTest<>;

TEST_P(RowLossArguments, OfCrossEntropyFitTogether) {
    const Uploaded z = poison(2, 3, DType::bf16), other = poison(2, 3, DType::fp32);
    const Uploaded one = poison(1, 3, DType::bf16), none = poison(2, 0, DType::bf16);
    const Uploaded losses = poison(2, 1, DType::fp32), narrow = poison(2, 1, DType::bf16);
    const auto labels = up(std::vector<int32_t>(4));
    const auto weights = up(std::vector<float>(4)), few = up(std::vector<float>(3));
    const auto forward = ops().cross_entropy_forward;
    EXPECT_THROW(forward(ctx(), z, labels, 0, losses), UsageError);
    EXPECT_THROW(forward(ctx(), z, labels, 1, losses), UsageError);
    EXPECT_THROW(forward(ctx(), z, labels, 2, narrow), UsageError);
    EXPECT_THROW(forward(ctx(), z, labels, 2, other), UsageError);
    EXPECT_THROW(forward(ctx(), one, labels, 4, losses), UsageError);
    EXPECT_THROW(forward(ctx(), none, labels, 2, losses), UsageError);
    const auto backward = ops().cross_entropy_backward;
    EXPECT_THROW(backward(ctx(), z, labels, weights, 0, z), UsageError);
    EXPECT_THROW(backward(ctx(), z, labels, weights, 1, z), UsageError);
    EXPECT_THROW(backward(ctx(), z, labels, few, 2, z), UsageError);
    EXPECT_THROW(backward(ctx(), z, labels, weights, 2, other), UsageError);
    EXPECT_THROW(backward(ctx(), z, labels, weights, 2, one), UsageError);
    EXPECT_THROW(backward(ctx(), none, labels, weights, 2, none), UsageError);
}

TEST_P(RowLossArguments, OfSquaredErrorsFitTogether) {
    const Uploaded x = poison(2, 3, DType::bf16), other = poison(2, 3, DType::fp32);
    const Uploaded one = poison(1, 3, DType::bf16), none = poison(2, 0, DType::bf16);
    const Uploaded losses = poison(2, 1, DType::fp32), narrow = poison(2, 1, DType::bf16);
    const auto targets = up(std::vector<float>(12));
    const auto weights = up(std::vector<float>(4)), few = up(std::vector<float>(3));
    const auto nothing = up(std::vector<float>());
    const auto forward = ops().squared_error_forward;
    EXPECT_THROW(forward(ctx(), x, targets, 0, losses), UsageError);
    EXPECT_THROW(forward(ctx(), x, targets, 1, losses), UsageError);
    EXPECT_THROW(forward(ctx(), x, targets, 2, narrow), UsageError);
    EXPECT_THROW(forward(ctx(), x, targets, 2, other), UsageError);
    EXPECT_THROW(forward(ctx(), none, nothing, 2, losses), UsageError);
    const auto backward = ops().squared_error_backward;
    EXPECT_THROW(backward(ctx(), x, targets, weights, 0, x), UsageError);
    EXPECT_THROW(backward(ctx(), x, targets, few, 2, x), UsageError);
    EXPECT_THROW(backward(ctx(), x, weights, weights, 2, x), UsageError);
    EXPECT_THROW(backward(ctx(), x, targets, weights, 2, other), UsageError);
    EXPECT_THROW(backward(ctx(), x, targets, weights, 2, one), UsageError);
}

TEST_P(RowLossArguments, OfTheSumFitTogether) {
    const Uploaded losses = poison(2, 1, DType::fp32), narrow = poison(2, 1, DType::bf16);
    const Uploaded wide = poison(2, 2, DType::fp32);
    const auto weights = up(std::vector<float>(4));
    const auto total = up(std::vector<double>(1));
    const auto add = ops().add_weighted_losses;
    EXPECT_THROW(add(ctx(), losses, weights, 0, total.data()), UsageError);
    EXPECT_THROW(add(ctx(), losses, weights, 1, total.data()), UsageError);
    EXPECT_THROW(add(ctx(), narrow, weights, 2, total.data()), UsageError);
    EXPECT_THROW(add(ctx(), wide, weights, 2, total.data()), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, RowLossArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

TEST(RowLossesOfTheHost, RefuseALabelThatIsNoColumn) {
    Context ctx({.threads = 1, .poll = {}});
    Matrix z = Matrix::random(2, 3, DType::fp32, 1), losses(2, 1, DType::fp32);
    const std::vector<float> weights(4, 1.0F);
    const std::vector<int32_t> wrong{2, 0, 3, 0}, right{2, 9, -7, 9};
    EXPECT_NO_THROW(host::cross_entropy_forward(ctx, z, right, 2, losses));
    EXPECT_NO_THROW(host::cross_entropy_backward(ctx, z, right, weights, 2, z));
    EXPECT_THROW(host::cross_entropy_backward(ctx, z, wrong, weights, 2, z), UsageError);
    try {
        host::cross_entropy_forward(ctx, z, wrong, 2, losses);
        FAIL() << "it does not refuse";
    } catch (const UsageError& error) {
        EXPECT_STREQ(error.what(),
                     "label 3 of row 1 is not one of 3 logits; a label must be below that number, "
                     "or negative to be ignored");
    }
}

TEST(ReferenceRowLosses, GradientsAreThoseOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    const int64_t rows = 4, cols = 3, stride = 2;
    const std::vector<int32_t> labels{2, 0, -1, 0, 0, 0, 1, 0};
    const auto weights = weights_of_rows({rows, cols, stride, 0});
    const auto targets = targets_of_rows({rows, cols, stride, 0});
    auto x = Matrix::random(rows, cols, DType::fp64, 1);
    Matrix factors(rows, 1, DType::fp64);
    for (int64_t i = 0; i < rows; ++i) {
        factors.set(i, 0, static_cast<double>(weights[static_cast<size_t>(i * stride)]));
    }
    const auto bound = [](int64_t, int64_t) { return kDifferenceBound; };
    Matrix dx(rows, cols, DType::fp64), losses(rows, 1, DType::fp64);
    reference::cross_entropy_backward(ctx, x, labels, weights, stride, dx);
    expect_close(dx,
                 numeric_gradient(x,
                                  [&] {
                                      reference::cross_entropy_forward(ctx, x, labels, stride,
                                                                       losses);
                                      return dot(losses, factors);
                                  }),
                 bound);
    reference::squared_error_backward(ctx, x, targets, weights, stride, dx);
    expect_close(dx,
                 numeric_gradient(x,
                                  [&] {
                                      reference::squared_error_forward(ctx, x, targets, stride,
                                                                       losses);
                                      return dot(losses, factors);
                                  }),
                 bound);
}

}  // namespace
}  // namespace vocabpipe::kernels::test

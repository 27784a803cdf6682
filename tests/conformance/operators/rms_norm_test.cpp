// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/norm_sizes.hpp"
#include "tests/conformance/operator_test.hpp"
#include "tests/conformance/rms_norm_oracle.hpp"

namespace vocabpipe::kernels::test {
namespace {

const RmsNormOptions kRmsNormOptions[] = {{}, {.epsilon = 1e-2F, .weight_offset = 1}};

using RmsNorm = TypedOperatorTest;

/// Calls body(sizes, options, with_residual) for all of them.
template <typename Body>
void for_all_norms(Body&& body) {
    for (const NormSizes& sizes : kNormSizes) {
        for (const RmsNormOptions& options : kRmsNormOptions) {
            for (const bool with_residual : {false, true}) {
                SCOPED_TRACE(testing::Message()
                             << sizes.n << " x " << sizes.h << " " << with_residual);
                body(sizes, options, with_residual);
            }
        }
    }
}

TEST_P(RmsNorm, ForwardAgreesWithTheReferenceAndMayOverwriteTheResidual) {
    for_all_norms([&](const NormSizes& s, const RmsNormOptions& options, bool with_residual) {
        const auto x = random_with_gap(s.n, s.h, type(), s.gap, 1, -0.5, 1.5);
        const auto gamma = random_with_gap(1, s.h, type(), s.gap, 2, -0.5, 1.5);
        const auto residual = random_with_gap(s.n, s.h, type(), s.gap, 3);
        Matrix exact(s.n, s.h, DType::fp64), exact_statistics(s.n, 1, DType::fp64);
        reference::rms_norm_forward(host, x, gamma, options,
                                    with_residual ? residual.view() : ConstTensor{}, exact,
                                    exact_statistics);
        const Uploaded in = up(x), weight = up(gamma), around = up(residual);
        const Uploaded y = poison(s.n, s.h, type(), s.gap),
                       statistics = poison(s.n, 1, DType::fp32);
        const auto forward = ops().rms_norm_forward;
        forward(ctx(), in, weight, options, with_residual ? ConstTensor(around) : ConstTensor{}, y,
                statistics);
        const Matrix result = y.download();
        const RmsNormErrors errors{x, gamma, options, exact_statistics, type()};
        expect_close(result, exact, errors.of_forward(exact));
        expect_close(statistics.download(), exact_statistics, errors.of_statistics());
        if (!with_residual) return;
        forward(ctx(), in, weight, options, around, around, statistics);
        EXPECT_TRUE(around.download().same_bits(result));
    });
}

TEST_P(RmsNorm, InputGradientAgreesWithTheReferenceAndMayOverwriteWhatItReads) {
    for_all_norms([&](const NormSizes& s, const RmsNormOptions& options, bool with_residual) {
        const auto x = random_with_gap(s.n, s.h, type(), s.gap, 1, -0.5, 1.5);
        const auto dy = random_with_gap(s.n, s.h, type(), s.gap, 2);
        const auto gamma = random_with_gap(1, s.h, type(), s.gap, 3, -0.5, 1.5);
        const auto residual = random_with_gap(s.n, s.h, type(), s.gap, 4);
        Matrix unused(s.n, s.h, DType::fp64), statistics(s.n, 1, DType::fp32);
        reference::rms_norm_forward(host, x, gamma, options, {}, unused, statistics);
        Matrix exact(s.n, s.h, DType::fp64);
        reference::rms_norm_backward_input(host, dy, x, gamma, options, statistics,
                                           with_residual ? residual.view() : ConstTensor{}, exact);
        const Uploaded gradient = up(dy), in = up(x), weight = up(gamma);
        const Uploaded given = up(statistics), around = up(residual);
        const Uploaded dx = poison(s.n, s.h, type(), s.gap);
        const ConstTensor some = with_residual ? ConstTensor(around) : ConstTensor{};
        const auto backward = [&](const Uploaded& to) {
            ops().rms_norm_backward_input(ctx(), gradient, in, weight, options, given, some, to);
            return to.download();
        };
        const Matrix result = backward(dx);
        const RmsNormErrors errors{x, gamma, options, statistics, type()};
        expect_close(result, exact, errors.of_backward_input(dy, exact));
        if (with_residual) {
            EXPECT_TRUE(backward(around).same_bits(result)) << "over the residual";
        }
        const Uploaded again = up(residual);
        ops().rms_norm_backward_input(ctx(), gradient, in, weight, options, given,
                                      with_residual ? ConstTensor(again) : ConstTensor{}, gradient);
        EXPECT_TRUE(gradient.download().same_bits(result)) << "over dy";
    });
}

TEST_P(RmsNorm, WeightGradientAgreesWithTheReferenceAndAccumulates) {
    for (const auto& [n, h, gap] : {NormSizes{1, 1, 3},
                                    {3, 2, 3},
                                    {5, 17, 3},
                                    {17, 129, 3},
                                    {2, 768, 3},
                                    {150, 40, 8},
                                    {300, 33, 3}}) {
        for (const bool accumulate : {false, true}) {
            SCOPED_TRACE(testing::Message() << n << " x " << h << " " << accumulate);
            const auto x = random_with_gap(n, h, type(), gap, 1, -0.5, 1.5);
            const auto dy = random_with_gap(n, h, type(), gap, 2);
            const auto statistics = Matrix::random(n, 1, DType::fp32, 3, 0.5, 2.0);
            const Matrix start = start_of_sum(1, h, accumulate, 4);
            auto exact = start.as(DType::fp64), magnitude = start.magnitude();
            reference::rms_norm_backward_weight(host, dy, x, statistics, exact, accumulate);
            reference::rms_norm_backward_weight(host, dy.magnitude(), x.magnitude(), statistics,
                                                magnitude, accumulate);
            const Uploaded gradient = up(dy), in = up(x), given = up(statistics);
            for (Context* ctx : device().workspaces()) {
                const Uploaded dgamma = up(start);
                ops().rms_norm_backward_weight(*ctx, gradient, in, given, dgamma, accumulate);
                // n + 1 terms; two roundings inside of one
                expect_close(dgamma.download(), exact, [&, n = n](int64_t, int64_t col) {
                    return static_cast<double>(n + 4) * kEps32 * magnitude.get(0, col);
                });
            }
        }
    }
}

// Two tensor ranks have some of the columns each.
TEST_P(RmsNorm, OfSomeColumnsAgreesWithTheReferenceOfAll) {
    const RmsNormOptions& options = kRmsNormOptions[1];
    for (const auto& [n, h, gap] : {NormSizes{1, 2, 3},
                                    {3, 3, 3},
                                    {5, 18, 3},
                                    {5, 34, 3},
                                    {17, 130, 3},
                                    {9, 128, 8},
                                    {2, 769, 3},
                                    {2, 8320, 8}}) {
        SCOPED_TRACE(testing::Message() << n << " x " << h);
        const auto x = random_with_gap(n, h, type(), gap, 1, -0.5, 1.5);
        const auto dy = random_with_gap(n, h, type(), gap, 2);
        const auto gamma = random_with_gap(1, h, type(), gap, 3, -0.5, 1.5);
        Matrix exact(n, h, DType::fp64), exact_dx(n, h, DType::fp64), all(n, 1, DType::fp32);
        reference::rms_norm_forward(host, x, gamma, options, {}, exact, all);
        reference::rms_norm_backward_input(host, dy, x, gamma, options, all, {}, exact_dx);
        const Uploaded in = up(x), gradient = up(dy), weight = up(gamma), inverse_rms = up(all);
        const Uploaded y = poison(n, h, type(), gap), dx = poison(n, h, type(), gap);
        const Uploaded statistics = poison(n, 1, DType::fp32);
        const RowRange parts[] = {{0, h / 2}, {h / 2, h}};
        const auto columns = [](const Uploaded& whole, RowRange part) {
            return whole.view().column_range(part.first, part.size());
        };
        RmsNormOptions of_part = options;
        of_part.columns = h;
        for (const bool with_dy : {false, true}) {
            Matrix sums(1, n, DType::fp32);
            for (const RowRange part : parts) {
                const Uploaded own = poison(1, n, DType::fp32);
                ops().rms_norm_sums(ctx(), with_dy ? columns(gradient, part) : Tensor{},
                                    columns(in, part), with_dy ? columns(weight, part) : Tensor{},
                                    options, with_dy ? inverse_rms.view() : Tensor{}, own);
                const Matrix made = own.download();
                for (int64_t i = 0; i < n; ++i) {
                    sums.set(0, i, made.get(0, i) + (part.first == 0 ? 0 : sums.get(0, i)));
                }
            }
            const Uploaded of_all = up(sums);
            of_part.sums = of_all;
            for (const RowRange part : parts) {
                if (with_dy) {
                    ops().rms_norm_backward_input(ctx(), columns(gradient, part), columns(in, part),
                                                  columns(weight, part), of_part, inverse_rms, {},
                                                  columns(dx, part));
                } else {
                    ops().rms_norm_forward(ctx(), columns(in, part), columns(weight, part), of_part,
                                           {}, columns(y, part), statistics);
                }
            }
        }
        const RmsNormErrors errors{x, gamma, options, all, type()};
        expect_close(statistics.download(), all.as(DType::fp64), errors.of_statistics());
        expect_close(y.download(), exact, errors.of_forward(exact));
        expect_close(dx.download(), exact_dx, errors.of_backward_input(dy, exact_dx));
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, RmsNorm,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

using RmsNormBits = TypedOperatorTest;

// Split backwards must have the bits of whole ones.
TEST_P(RmsNormBits, AllGradientsAtOnceAreThoseOfEachAlone) {
    for (Context* context : device().workspaces()) {
        for (const auto& [n, h, gap] : kNormSizesOfBits) {
            for (const bool accumulate : {false, true}) {
                SCOPED_TRACE(testing::Message() << n << " x " << h);
                Context& ctx = *context;
                const RmsNormOptions& options = kRmsNormOptions[accumulate ? 1 : 0];
                const Uploaded x = up(random_with_gap(n, h, type(), gap, 1, -0.5, 1.5));
                const Uploaded dy = up(random_with_gap(n, h, type(), gap, 2));
                const Uploaded gamma = up(random_with_gap(1, h, type(), gap, 3, -0.5, 1.5));
                const Uploaded around = up(random_with_gap(n, h, type(), gap, 4));
                const Uploaded statistics = up(Matrix::random(n, 1, DType::fp32, 5, 0.5, 2.0));
                const Matrix start = start_of_sum(1, h, accumulate, 6);
                const Uploaded dgamma = up(start), both_gamma = up(start);
                const Uploaded dx = poison(n, h, type(), gap);
                ops().rms_norm_backward_input(ctx, dy, x, gamma, options, statistics, around, dx);
                ops().rms_norm_backward_weight(ctx, dy, x, statistics, dgamma, accumulate);
                // In place of the residual, which has then been read, and of dy, which has served
                // for the sums.
                ops().rms_norm_backward(ctx, dy, x, gamma, options, statistics, around, around,
                                        both_gamma, accumulate);
                EXPECT_TRUE(around.download().same_bits(dx.download()));
                EXPECT_TRUE(both_gamma.download().same_bits(dgamma.download()));
                ops().rms_norm_backward_input(ctx, dy, x, gamma, options, statistics, {}, dx);
                ops().rms_norm_backward(ctx, dy, x, gamma, options, statistics, {}, dy, both_gamma,
                                        false);
                EXPECT_TRUE(dy.download().same_bits(dx.download()));
                if (accumulate) continue;
                EXPECT_TRUE(both_gamma.download().same_bits(dgamma.download()));
            }
        }
    }
}

TEST_P(RmsNormBits, AreTheSameForAnyThreads) {
    const int64_t n = 131, h = 515;
    const Uploaded x = up(Matrix::random(n, h, type(), 1)),
                   dy = up(Matrix::random(n, h, type(), 2));
    const Uploaded gamma = up(Matrix::random(1, h, type(), 3));
    expect_same_bits_with_any_threads([&](Context& ctx) {
        const Uploaded y = poison(n, h, type()), statistics = poison(n, 1, DType::fp32);
        const Uploaded dx = poison(n, h, type()), dgamma = poison(1, h, DType::fp32);
        ops().rms_norm_forward(ctx, x, gamma, {}, dy, y, statistics);
        ops().rms_norm_backward_input(ctx, dy, x, gamma, {}, statistics, {}, dx);
        ops().rms_norm_backward_weight(ctx, dy, x, statistics, dgamma, false);
        return std::vector{y.download(), statistics.download(), dx.download(), dgamma.download()};
    });
}

TEST_P(RmsNormBits, OperandsFitTogether) {
    const DType other = type() == DType::fp32 ? DType::bf16 : DType::fp32;
    const Uploaded x = poison(2, 8, type()), gamma = poison(1, 8, type());
    const Uploaded residual = poison(2, 8, other), y = poison(2, 8, type());
    const Uploaded statistics = poison(2, 1, DType::fp32), wide = poison(2, 2, DType::fp32);
    EXPECT_THROW(ops().rms_norm_forward(ctx(), x, gamma, {}, residual, y, statistics), UsageError);
    EXPECT_THROW(ops().rms_norm_forward(ctx(), x, gamma, {}, {}, y, wide), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, RmsNormBits,
                         testing::Combine(testing::ValuesIn(product_devices()), kTypes), kNames);

TEST(ReferenceRmsNorm, GradientsAreThoseOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    const int64_t n = 4, h = 6;
    const RmsNormOptions options{.epsilon = 0.1F, .weight_offset = 1};
    auto x = Matrix::random(n, h, DType::fp64, 1);
    auto gamma = Matrix::random(1, h, DType::fp64, 2);
    auto around = Matrix::random(n, h, DType::fp64, 3);
    const auto dy = Matrix::random(n, h, DType::fp64, 4);
    const auto residual = Matrix::random(n, h, DType::fp64, 5);
    const auto loss = [&] {
        Matrix y(n, h, DType::fp64), own(n, 1, DType::fp64);
        reference::rms_norm_forward(ctx, x, gamma, options, around, y, own);
        return dot(y, dy) + dot(x, residual);
    };
    Matrix y(n, h, DType::fp64), statistics(n, 1, DType::fp64), dx(n, h, DType::fp64);
    Matrix dgamma(1, h, DType::fp64);
    reference::rms_norm_forward(ctx, x, gamma, options, around, y, statistics);
    reference::rms_norm_backward_input(ctx, dy, x, gamma, options, statistics, residual, dx);
    reference::rms_norm_backward_weight(ctx, dy, x, statistics, dgamma, false);
    const auto bound = [](int64_t, int64_t) { return kDifferenceBound; };
    expect_close(dx, numeric_gradient(x, loss), bound);
    expect_close(dgamma, numeric_gradient(gamma, loss), bound);
    expect_close(dy, numeric_gradient(around, loss), bound);
}

TEST(ReferenceRmsNorm, OfSomeColumnsTakesTheMeansFromTheSumsOfAll) {
    Context ctx({.threads = 1, .poll = {}});
    const auto matrix = [](std::initializer_list<double> values) {
        Matrix filled(2, 2, DType::fp64);
        for (int64_t i = 0; i < 4; ++i) filled.set(i / 2, i % 2, values.begin()[i]);
        return filled;
    };
    const Matrix x = matrix({1, 2, 3, 4}), dy = matrix({1, 1, 2, 0});
    Matrix gamma(1, 2, DType::fp64), sums(1, 2, DType::fp64), statistics(2, 1, DType::fp64);
    for (int64_t i = 0; i < 2; ++i) gamma.set(0, i, 1);
    Matrix y(2, 2, DType::fp64), dx(2, 2, DType::fp64);
    // The mean squares of all 8 columns are 4 and 16, so z is x / 2 and x / 4.
    sums.set(0, 0, 32);
    sums.set(0, 1, 128);
    RmsNormOptions options{.epsilon = 0, .columns = 8};
    options.sums = sums.view();
    reference::rms_norm_forward(ctx, x, gamma, options, {}, y, statistics);
    const auto exactly = [](int64_t, int64_t) { return 0.0; };
    expect_close(y, matrix({0.5, 1, 0.75, 1}), exactly);
    EXPECT_EQ(statistics.get(0, 0), 0.5);
    EXPECT_EQ(statistics.get(1, 0), 0.25);
    // The means of g z are 2 and 4: dx = (g - z mean) inverse_rms.
    sums.set(0, 0, 16);
    sums.set(0, 1, 32);
    reference::rms_norm_backward_input(ctx, dy, x, gamma, options, statistics, {}, dx);
    expect_close(dx, matrix({0, -0.5, -0.25, -1}), exactly);
}

}  // namespace
}  // namespace vocabpipe::kernels::test

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/bf16.hpp"
#include "kernels/counter_rng.hpp"
#include "kernels/host/operators.hpp"
#include "kernels/host/random.hpp"
#include "kernels/reference/operators.hpp"
#include "kernels/reference/random.hpp"

namespace vocabpipe::kernels {
namespace {

std::vector<float> normals(int64_t count, uint64_t id, float std) {
    Context ctx({.threads = 1, .poll = {}});
    std::vector<float> values(static_cast<size_t>(count));
    host::fill_normal(ctx, {values.data(), 1, count, DType::fp32}, 1, id, 0, std);
    return values;
}

struct Optimizer {
    std::vector<float> p, m, v;
    std::vector<Bf16> weight;
};

/// Five steps with a new gradient each.
Optimizer train(int64_t count, int threads, bool reference_kernels) {
    Context ctx({.threads = threads, .poll = {}});
    const auto size = static_cast<size_t>(count);
    Optimizer o{normals(count, 1, 0.5F), std::vector<float>(size), std::vector<float>(size),
                std::vector<Bf16>(size)};
    for (int step = 1; step <= 5; ++step) {
        const auto gradient = normals(count, 100 + static_cast<uint64_t>(step), 1e-2F);
        const AdamWTensor tensor{.master = o.p,
                                 .gradient = gradient,
                                 .exp_avg = o.m,
                                 .exp_avg_sq = o.v,
                                 .weight = {o.weight.data(), 1, count, DType::bf16},
                                 .weight_decay = 0.1F};
        const StepScalars scalars{
            .lr = 1e-2F,
            .bias_correction1 = static_cast<float>(1 - std::pow(0.9, step)),
            .bias_correction2 = static_cast<float>(1 - std::pow(0.999, step)),
            .gradient_scale = 0.7F,
            .update = 1,
        };
        (reference_kernels ? reference::adamw : host::adamw)(ctx, {&tensor, 1}, {.beta2 = 0.999F},
                                                             &scalars);
    }
    return o;
}

TEST(AdamW, FollowsTheTextbookInDoubleOverFiveSteps) {
    constexpr int64_t kCount = 1009;
    for (const bool reference_kernels : {false, true}) {
        const Optimizer actual = train(kCount, 1, reference_kernels);
        const auto start = normals(kCount, 1, 0.5F);
        std::vector<double> p(start.begin(), start.end()), m(kCount), v(kCount);
        for (int step = 1; step <= 5; ++step) {
            const auto gradient = normals(kCount, 100 + static_cast<uint64_t>(step), 1e-2F);
            for (size_t i = 0; i < p.size(); ++i) {
                const double g = 0.7 * gradient[i];
                p[i] -= 1e-2 * 0.1 * p[i];
                m[i] = 0.9 * m[i] + 0.1 * g;
                v[i] = 0.999 * v[i] + 0.001 * g * g;
                const double m_hat = m[i] / (1 - std::pow(0.9, step));
                const double v_hat = v[i] / (1 - std::pow(0.999, step));
                p[i] -= 1e-2 * m_hat / (std::sqrt(v_hat) + 1e-8);
            }
        }
        for (size_t i = 0; i < p.size(); ++i) {
            // 0.999 is an fp32, so 1 - 0.999 is off by 1.3e-5: half of that is in sqrt(v), in a
            // step of at most a few lr, five times.
            EXPECT_NEAR(actual.p[i], p[i], 5 * (3e-2 * 1e-5 + std::abs(p[i]) * 0x1p-23)) << i;
            EXPECT_NEAR(actual.m[i], m[i], 1e-6 * std::abs(m[i]) + 1e-8) << i;
            EXPECT_NEAR(actual.v[i], v[i], 2e-5 * v[i]) << i;
        }
    }
}

TEST(AdamW, MatchesTheReferenceKernel) {
    const Optimizer host = train(10007, 1, false);
    const Optimizer reference = train(10007, 1, true);
    for (size_t i = 0; i < host.p.size(); ++i) {
        ASSERT_NEAR(host.p[i], reference.p[i], 5e-6) << i;
        ASSERT_NEAR(host.m[i], reference.m[i], 1e-8) << i;
        ASSERT_NEAR(host.v[i], reference.v[i], 1e-6 * reference.v[i]) << i;
    }
}

TEST(AdamW, RefreshesTheBf16CopyAndGivesTheSameBitsForAnyNumberOfThreads) {
    const Optimizer one = train(100003, 1, false);
    const Optimizer two = train(100003, 2, false);
    EXPECT_EQ(one.p, two.p);
    EXPECT_EQ(one.v, two.v);
    for (size_t i = 0; i < one.p.size(); ++i) {
        ASSERT_EQ(one.weight[i].bits, to_bf16(one.p[i]).bits) << i;
    }
}

TEST(AdamW, UpdatesAParameterAlikeWhereverTheSpanStarts) {
    Context ctx({.threads = 1, .poll = {}});
    const auto gradient = normals(5000, 3, 1);
    auto p = normals(5000, 4, 1), whole = p;
    std::vector<float> m(5000), v(5000), m_whole(5000), v_whole(5000);
    const StepScalars scalars{.lr = 1e-3F, .update = 1};
    const AdamWTensor all{
        .master = whole, .gradient = gradient, .exp_avg = m_whole, .exp_avg_sq = v_whole};
    host::adamw(ctx, {&all, 1}, {}, &scalars);
    std::vector<AdamWTensor> parts;
    for (size_t begin = 0; begin < 5000; begin += 1250 - 3) {
        const size_t count = std::min<size_t>(1250 - 3, 5000 - begin);
        parts.push_back({.master = std::span(p).subspan(begin, count),
                         .gradient = std::span(gradient).subspan(begin, count),
                         .exp_avg = std::span(m).subspan(begin, count),
                         .exp_avg_sq = std::span(v).subspan(begin, count)});
    }
    host::adamw(ctx, parts, {}, &scalars);
    EXPECT_EQ(p, whole);
}

TEST(AdamW, ChangesNothingInAStepThatIsNotTaken) {
    Context ctx({.threads = 1, .poll = {}});
    for (const auto kernel : {host::adamw, reference::adamw}) {
        const std::vector<float> gradient{8, -8};
        std::vector<float> p{1, -2}, m{3, -4}, v{5, 6};
        std::vector<Bf16> weight{to_bf16(1), to_bf16(-2)};
        const AdamWTensor tensor{.master = p,
                                 .gradient = gradient,
                                 .exp_avg = m,
                                 .exp_avg_sq = v,
                                 .weight = {weight.data(), 1, 2, DType::bf16},
                                 .weight_decay = 0.1F};
        const StepScalars skipped{.lr = 0.5F, .update = 0};
        kernel(ctx, {&tensor, 1}, {}, &skipped);
        EXPECT_EQ(p, (std::vector<float>{1, -2}));
        EXPECT_EQ(m, (std::vector<float>{3, -4}));
        EXPECT_EQ(v, (std::vector<float>{5, 6}));
        EXPECT_EQ(weight[0].bits, to_bf16(1).bits);
        EXPECT_EQ(weight[1].bits, to_bf16(-2).bits);
    }
}

double squares(Context& ctx, ConstTensor values) {
    double sum = 0;
    host::sum_of_squares(ctx, values, &sum);
    return sum;
}

TEST(SumOfSquares, EqualsTheSumInDouble) {
    Context ctx({.threads = 1, .poll = {}});
    for (const int64_t count : {0, 1, 15, 4096, 4097, 1000003}) {
        auto values = normals(count, 5, 3);
        const ConstTensor view(values.data(), 1, count, DType::fp32);
        double expected = 0;
        reference::sum_of_squares(ctx, view, &expected);
        // The reference adds a million numbers one by one: 1e6 times 2^-53 at most.
        EXPECT_NEAR(squares(ctx, view), expected, 1e-10 * expected);
    }
}

TEST(SumOfSquares, HasTheSameBitsForAnyThreadsStridesAndCutsAtBlocks) {
    Context one({.threads = 1, .poll = {}});
    Context two({.threads = 2, .poll = {}});
    constexpr int64_t kRows = 1001;
    constexpr int64_t kCols = 77;
    const auto dense = normals(kRows * kCols, 6, 1);
    std::vector<float> strided(kRows * (kCols + 9), NAN);
    for (int64_t row = 0; row < kRows; ++row) {
        std::copy_n(dense.begin() + row * kCols, kCols, strided.begin() + row * (kCols + 9));
    }
    const double expected = squares(one, {dense.data(), kRows, kCols, DType::fp32});
    EXPECT_EQ(squares(two, {dense.data(), kRows, kCols, DType::fp32}), expected);
    EXPECT_EQ(squares(two, {strided.data(), kRows, kCols, kCols + 9, DType::fp32}), expected);
    double parts = 0;  // one block after another, as a shard of whole blocks would
    for (int64_t begin = 0; begin < kRows * kCols; begin += host::kSquaresBlock) {
        const int64_t count = std::min(host::kSquaresBlock, kRows * kCols - begin);
        parts += squares(one, {dense.data() + begin, 1, count, DType::fp32});
    }
    EXPECT_EQ(parts, expected);
}

// Sixteen lanes, of which element i has lane i mod 16, are added up as a tree, block by block.
TEST(SumOfSquares, RoundsInTheSameLanesWhereverARowBegins) {
    Context ctx({.threads = 1, .poll = {}});
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{3, 37},
                                     {5, 21},
                                     {40, 3},
                                     {2, 100},
                                     {7, 15},
                                     {6, 17},
                                     {9, 16},
                                     {130, 77}}) {
        SCOPED_TRACE(cols);
        const int64_t stride = cols + 9;
        std::vector<float> dense = normals(rows * cols, 11, 1);
        std::vector<float> strided(static_cast<size_t>(rows * stride), NAN);
        double expected = 0;
        std::array<double, 16> lanes{};
        for (int64_t i = 0; i < rows * cols; ++i) {
            float& value = dense[static_cast<size_t>(i)];
            value *= std::array{1.0F, 0x1p-6F, 0x1p-12F}[static_cast<size_t>(i % 3)];
            strided[static_cast<size_t>(i / cols * stride + i % cols)] = value;
            lanes[static_cast<size_t>(i % 16)] += static_cast<double>(value) * value;
            if ((i + 1) % host::kSquaresBlock != 0 && i + 1 < rows * cols) continue;
            for (size_t half = 8; half > 0; half /= 2) {
                for (size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
            }
            expected += lanes[0];
            lanes = {};
        }
        EXPECT_EQ(squares(ctx, {dense.data(), rows, cols, DType::fp32}), expected);
        EXPECT_EQ(squares(ctx, {strided.data(), rows, cols, stride, DType::fp32}), expected);
    }
}

TEST(SumOfSquares, AddsToWhatIsThereAndGoesThroughMoreBlocksThanItHoldsAtOnce) {
    Context ctx({.threads = 2, .poll = {}});
    constexpr int64_t kCount = 1024 * host::kSquaresBlock + 5;
    const std::vector<float> ones(kCount, 1);
    double sum = 3;
    host::sum_of_squares(ctx, {ones.data(), 1, kCount, DType::fp32}, &sum);
    EXPECT_EQ(sum, kCount + 3);
}

TEST(SumOfSquares, IsNotFiniteIfAnyElementIsNotAndFiniteForEveryFiniteFloat) {
    Context ctx({.threads = 1, .poll = {}});
    constexpr float kMax = std::numeric_limits<float>::max();
    for (const int64_t at : {0, 17, 4999}) {
        for (const float bad : {NAN, INFINITY, -INFINITY}) {
            std::vector<float> values(5000, 1);
            values[static_cast<size_t>(at)] = bad;
            EXPECT_FALSE(std::isfinite(squares(ctx, {values.data(), 1, 5000, DType::fp32})));
        }
    }
    const std::vector<float> large(5000, kMax);
    EXPECT_TRUE(std::isfinite(squares(ctx, {large.data(), 1, 5000, DType::fp32})));
}

TEST(FillNormal, KnowsThePublishedPhiloxVectors) {
    // Known answers of Random123: kat_vectors, philox4x32 10.
    using Words = std::array<uint32_t, 4>;
    EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
              (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
              (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(FillNormal, GivesEveryShardTheRowsOfTheWholeMatrix) {
    Context one({.threads = 1, .poll = {}});
    Context two({.threads = 2, .poll = {}});
    constexpr int64_t kRows = 1003;
    constexpr int64_t kCols = 37;  // rows start inside of a block of four
    std::vector<float> whole(kRows * kCols);
    host::fill_normal(two, {whole.data(), kRows, kCols, DType::fp32}, 42, 7, 0, 0.02F);
    std::vector<float> reference_values(kRows * kCols);
    reference::fill_normal({reference_values.data(), kRows, kCols, DType::fp32}, 42, 7, 0, 0.02F);
    EXPECT_EQ(whole, reference_values);
    for (const int64_t shards : {2, 3, 8}) {
        for (int64_t k = 0; k < shards; ++k) {
            const int64_t begin = kRows * k / shards;
            const int64_t rows = kRows * (k + 1) / shards - begin;
            constexpr int64_t kStride = kCols + 2;
            std::vector<float> part(static_cast<size_t>(rows * kStride));
            host::fill_normal(one, {part.data(), rows, kCols, kStride, DType::fp32}, 42, 7,
                              begin * kCols, 0.02F);
            for (int64_t row = 0; row < rows; ++row) {
                ASSERT_TRUE(std::equal(part.begin() + row * kStride,
                                       part.begin() + row * kStride + kCols,
                                       whole.begin() + (begin + row) * kCols));
            }
        }
    }
}

// One row, as the parameter store asks for them; threads begin inside of a block of four.
TEST(FillNormal, GivesTheSameNumbersForAnyNumberOfThreads) {
    constexpr int64_t kCount = 50021;
    std::vector<float> expected(kCount);
    reference::fill_normal({expected.data(), 1, kCount, DType::fp32}, 42, 7, 4194301, 0.02F);
    for (const int threads : {1, 2, 3, 5}) {
        Context ctx({.threads = threads, .poll = {}});
        std::vector<float> values(kCount);
        host::fill_normal(ctx, {values.data(), 1, kCount, DType::fp32}, 42, 7, 4194301, 0.02F);
        EXPECT_EQ(values, expected) << threads << " threads";
    }
}

TEST(FillNormal, HasTheMomentsOfANormalDistribution) {
    constexpr int64_t kCount = 1 << 18;
    const auto values = normals(kCount, 9, 2);
    double mean = 0;
    double square = 0;
    double fourth = 0;
    double neighbours = 0;
    for (size_t i = 0; i < values.size(); ++i) {
        const double z = values[i] / 2;
        mean += z / kCount;
        square += z * z / kCount;
        fourth += z * z * z * z / kCount;
        neighbours += z * (values[(i + 1) % values.size()] / 2) / kCount;
    }
    // Five standard errors: 1 / sqrt(n) = 0.002, times 1, sqrt(2), sqrt(96), 1.
    EXPECT_NEAR(mean, 0, 0.01);
    EXPECT_NEAR(square, 1, 0.014);
    EXPECT_NEAR(fourth, 3, 0.1);
    EXPECT_NEAR(neighbours, 0, 0.01);
    EXPECT_NE(normals(16, 9, 2), normals(16, 10, 2));
}

}  // namespace
}  // namespace vocabpipe::kernels

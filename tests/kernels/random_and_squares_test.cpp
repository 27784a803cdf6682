// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <utility>
#include <vector>

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

double squares(Context& ctx, ConstTensor values) {
    double sum = 0;
    host::sum_of_squares(ctx, values, &sum);
    return sum;
}

TEST(SquaresInBlocks, OfAMillionNumbersEqualsTheSumInDouble) {
    Context ctx({.threads = 1, .poll = {}});
    const auto values = normals(1000003, 5, 3);
    const ConstTensor view(values.data(), 1, 1000003, DType::fp32);
    double expected = 0;
    reference::sum_of_squares(ctx, view, &expected);
    // The reference adds a million numbers one by one: 1e6 times 2^-53 at most.
    EXPECT_NEAR(squares(ctx, view), expected, 1e-10 * expected);
}

TEST(SquaresInBlocks, HasTheSameBitsForAnyThreadsStridesAndCutsAtBlocks) {
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
TEST(SquaresInBlocks, RoundsInTheSameLanesWhereverARowBegins) {
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

TEST(SquaresInBlocks, AddsToWhatIsThereAndGoesThroughMoreBlocksThanItHoldsAtOnce) {
    Context ctx({.threads = 2, .poll = {}});
    constexpr int64_t kCount = 1024 * host::kSquaresBlock + 5;
    const std::vector<float> ones(kCount, 1);
    double sum = 3;
    host::sum_of_squares(ctx, {ones.data(), 1, kCount, DType::fp32}, &sum);
    EXPECT_EQ(sum, kCount + 3);
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

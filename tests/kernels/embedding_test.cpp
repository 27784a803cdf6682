// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <gtest/gtest.h>

#include "kernels/reference/operators.hpp"
#include "tests/kernels/matrix.hpp"

namespace vocabpipe::kernels::test {
namespace {

std::vector<int32_t> random_ids(int64_t count, int32_t vocabulary) {
    std::mt19937 engine(7);
    std::uniform_int_distribution<int32_t> id(0, vocabulary - 1);
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (auto& value : ids) value = id(engine);
    return ids;
}

class ElementwiseOfType : public testing::TestWithParam<DType> {
protected:
    Context ctx{{.threads = 1, .poll = {}}};
};
using EmbeddingOfType = ElementwiseOfType;

TEST_P(ElementwiseOfType, AddIsTheRoundedSumAndMayOverwriteAnOperand) {
    const DType type = GetParam();
    const auto a = Matrix::random(17, 129, type, 1);
    const auto b = Matrix::random(17, 129, type, 2);
    Matrix out(17, 129, type), exact(17, 129, DType::fp64);
    host::add(ctx, a, b, out);
    reference::add(ctx, a, b, exact);
    expect_close(out, exact, [&](int64_t row, int64_t col) {
        return (unit_roundoff(type) + kEps32) * std::abs(exact.get(row, col));
    });
    auto aliased = a.as(type);
    host::add(ctx, aliased, b, aliased);
    EXPECT_TRUE(aliased.same_bits(out));
}

TEST_P(ElementwiseOfType, ConvertGivesTheBitsOfTheReference) {
    for (const DType to : {DType::fp32, DType::bf16}) {
        const auto from = Matrix::random(33, 65, GetParam(), 1, -100.0, 100.0);
        Matrix actual(33, 65, to), expected(33, 65, to);
        host::convert(ctx, from, actual);
        reference::convert(ctx, from, expected);
        EXPECT_TRUE(actual.same_bits(expected));
        EXPECT_TRUE(actual.gaps_are_intact());
    }
}

TEST_P(ElementwiseOfType, ScaleIsTheRoundedProductAndMayOverwriteItsOperand) {
    const DType type = GetParam();
    const float factor = 24.0F / 7.0F;
    const auto x = Matrix::random(300, 129, type, 1);
    Matrix y(300, 129, type), exact(300, 129, DType::fp64);
    host::scale(ctx, x, factor, y);
    reference::scale(ctx, x, factor, exact);
    expect_close(y, exact, [&](int64_t row, int64_t col) {
        return (unit_roundoff(type) + kEps32) * std::abs(exact.get(row, col));
    });
    auto aliased = x.as(type);
    Context two({.threads = 2, .poll = {}});
    host::scale(two, aliased, factor, aliased);
    EXPECT_TRUE(aliased.same_bits(y));
}

TEST_P(EmbeddingOfType, GatherOfShardsAddsUpToTheTable) {
    const DType type = GetParam();
    const int64_t vocabulary = 23, h = 37, n = 50;
    const auto ids = random_ids(n, vocabulary);
    const auto table = Matrix::random(vocabulary, h, type, 1);
    for (const auto& [first, count] : {std::pair{0, 23}, {0, 9}, {9, 13}, {22, 1}, {23, 0}}) {
        Matrix out(n, h, type), expected(n, h, type);
        const auto shard = table.view().row_range(first, count);
        host::embedding_gather(ctx, ids, shard, first, out);
        reference::embedding_gather(ctx, ids, shard, first, expected);
        EXPECT_TRUE(out.same_bits(expected));
        EXPECT_TRUE(out.gaps_are_intact());
    }
}

TEST_P(EmbeddingOfType, ScatterAddsRepeatedIdsInOrder) {
    const DType type = GetParam();
    const int64_t vocabulary = 11, h = 1001, n = 60;
    const auto ids = random_ids(n, vocabulary);
    const auto dy = Matrix::random(n, h, type, 1);
    Context two({.threads = 2, .poll = {}});
    for (const auto& [first, count] : {std::pair{0, 11}, {3, 5}, {11, 0}}) {
        for (const bool accumulate : {false, true}) {
            auto actual = accumulate ? Matrix::random(count, h, DType::fp32, 2)
                                     : Matrix(count, h, DType::fp32);
            auto on_two = actual;
            auto expected = actual.as(DType::fp64);
            host::embedding_scatter_add(ctx, ids, dy, first, actual, accumulate);
            host::embedding_scatter_add(two, ids, dy, first, on_two, accumulate);
            reference::embedding_scatter_add(ctx, ids, dy, first, expected, accumulate);
            // at most n + 1 terms of magnitude 1
            expect_close(actual, expected, [](int64_t, int64_t) { return n * (n + 1) * kEps32; });
            EXPECT_TRUE(on_two.same_bits(actual));
        }
    }
}

TEST_P(EmbeddingOfType, ScatterLeavesRowsWithoutAnIdAtMinusZero) {
    Matrix dshard(5, 37, DType::fp32);
    const auto dy = Matrix::random(2, 37, GetParam(), 1);
    host::embedding_scatter_add(ctx, std::vector<int32_t>{3, 9}, dy, 0, dshard, false);
    for (int64_t row = 0; row < 5; ++row) {
        for (int64_t col = 0; col < 37; ++col) {
            const double value = dshard.get(row, col);
            EXPECT_TRUE(row == 3 ? value == dy.get(0, col) : value == 0 && std::signbit(value));
        }
    }
}

TEST_P(EmbeddingOfType, PositionsRepeatPerSequenceAndTheirGradientSumsOverSequences) {
    const DType type = GetParam();
    const int64_t sequences = 3, seq_length = 7, h = 129, n = sequences * seq_length;
    const auto x = Matrix::random(n, h, type, 1);
    const auto wpe = Matrix::random(seq_length + 2, h, type, 2);
    Matrix y(n, h, type), exact(n, h, DType::fp64);
    host::add_positions(ctx, x, wpe, seq_length, y);
    reference::add_positions(ctx, x, wpe, seq_length, exact);
    expect_close(y, exact, [&](int64_t row, int64_t col) {
        return (unit_roundoff(type) + kEps32) * std::abs(exact.get(row, col));
    });
    for (const bool accumulate : {false, true}) {
        auto dwpe = accumulate ? Matrix::random(seq_length + 2, h, DType::fp32, 3)
                               : Matrix(seq_length + 2, h, DType::fp32);
        auto expected = dwpe.as(DType::fp64);
        host::positions_gradient(ctx, x, seq_length, dwpe, accumulate);
        reference::positions_gradient(ctx, x, seq_length, expected, accumulate);
        expect_close(dwpe, expected,
                     [](int64_t row, int64_t) { return row < seq_length ? 3 * 4 * kEps32 : 0.0; });
    }
}

INSTANTIATE_TEST_SUITE_P(Types, ElementwiseOfType, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

INSTANTIATE_TEST_SUITE_P(Types, EmbeddingOfType, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

TEST(EmbeddingTake, AddsAndClearsTheRowsOfAllIdsAndChangesNoOther) {
    const int64_t h = 1001, n = 50;
    std::vector<int32_t> first_ids = random_ids(n, 25);  // many of them twice
    std::vector<int32_t> second_ids(first_ids.begin(), first_ids.begin() + 20);
    for (int32_t& id : second_ids) id = (id + 9) % 40;
    const std::vector<std::span<const int32_t>> ids{first_ids, second_ids};
    const auto dy = Matrix::random(n, h, DType::fp32, 1);
    for (const int threads : {1, 2}) {
        Context ctx({.threads = threads, .poll = {}});
        for (const auto& [first, count] : {std::pair{0, 40}, {9, 13}, {40, 0}}) {
            Matrix from(count, h, DType::fp32);
            host::embedding_scatter_add(ctx, first_ids, dy, first, from, false);
            host::embedding_scatter_add(ctx, second_ids, dy.view().row_range(0, 20), first, from,
                                        true);
            auto to = Matrix::random(count, h, DType::fp32, 2);
            for (int64_t row = 0; row < count; ++row) {
                for (int64_t col = row % 3; col < h; col += 3) to.set(row, col, -0.0);
            }
            auto expected_from = from.as(DType::fp32);
            auto expected_to = to.as(DType::fp32);
            reference::embedding_take(ctx, ids, first, expected_from, expected_to);
            host::embedding_take(ctx, ids, first, from, to);
            EXPECT_TRUE(to.same_bits(expected_to)) << "first row " << first;
            EXPECT_TRUE(from.same_bits(expected_from)) << "first row " << first;
            EXPECT_TRUE(to.gaps_are_intact());
            EXPECT_TRUE(from.gaps_are_intact());
        }
    }
}

TEST(ReferenceEmbedding, GradientsAreThoseOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    const int64_t rows = 6, h = 3, n = 8;
    const auto ids = random_ids(n, 9);  // some outside of the shard 2 .. 7
    auto shard = Matrix::random(rows, h, DType::fp64, 1);
    auto wpe = Matrix::random(4, h, DType::fp64, 2);
    const auto dy = Matrix::random(n, h, DType::fp64, 3);
    const auto loss = [&] {
        Matrix gathered(n, h, DType::fp64), y(n, h, DType::fp64);
        reference::embedding_gather(ctx, ids, shard, 2, gathered);
        reference::add_positions(ctx, gathered, wpe, 4, y);
        return dot(y, dy);
    };
    Matrix dshard(rows, h, DType::fp64), dwpe(4, h, DType::fp64);
    reference::embedding_scatter_add(ctx, ids, dy, 2, dshard, false);
    reference::positions_gradient(ctx, dy, 4, dwpe, false);
    const auto bound = [](int64_t, int64_t) { return kDifferenceBound; };
    expect_close(dshard, numeric_gradient(shard, loss), bound);
    expect_close(dwpe, numeric_gradient(wpe, loss), bound);
}

TEST(HostKernels, RefuseFp64) {
    Context ctx({.threads = 1, .poll = {}});
    Matrix a(2, 2, DType::fp64), b(2, 2, DType::fp64);
    EXPECT_THROW(host::convert(ctx, a, b), UsageError);
}

}  // namespace
}  // namespace vocabpipe::kernels::test

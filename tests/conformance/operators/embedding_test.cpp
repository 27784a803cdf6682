// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

std::vector<int32_t> random_ids(int64_t count, int32_t vocabulary) {
    std::mt19937 engine(7);
    std::uniform_int_distribution<int32_t> id(0, vocabulary - 1);
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (auto& value : ids) value = id(engine);
    return ids;
}

struct Width {
    int64_t columns;
    int64_t gap;  ///< 0 or 8 with columns of whole 16-byte vectors: all rows are aligned

    friend std::string name_of(const Width& width) {
        return std::to_string(width.columns) + "_columns_gap_" + std::to_string(width.gap);
    }
    friend void PrintTo(const Width& width, std::ostream* out) { *out << name_of(width); }
};
const Width kWidths[] = {{1, 0}, {37, 3}, {64, 8}, {129, 3}, {600, 0}, {1001, 3}};

class Embedding : public OperatorTest<DType, Width> {
protected:
    [[nodiscard]] DType type() const { return parameter<1>(); }
    [[nodiscard]] int64_t width() const { return parameter<2>().columns; }
    [[nodiscard]] int64_t gap() const { return parameter<2>().gap; }
    [[nodiscard]] Matrix random(int64_t rows, DType of, unsigned seed) const {
        return random_with_gap(rows, width(), of, gap(), seed);
    }
    [[nodiscard]] Matrix start(int64_t rows, bool accumulate, unsigned seed) const {
        return accumulate ? random(rows, DType::fp32, seed)
                          : Matrix(rows, width(), DType::fp32, gap());
    }
};

TEST_P(Embedding, GatherOfShardsGivesTheBitsOfTheReference) {
    const int64_t vocabulary = 23, n = 50;
    const auto ids = random_ids(n, vocabulary);
    const auto ids_there = up(ids);
    const auto table = random(vocabulary, type(), 1);
    const Uploaded there = up(table);
    for (const DType to : {DType::fp32, DType::bf16}) {
        for (const auto& [first, count] : {std::pair{0, 23}, {0, 9}, {9, 13}, {22, 1}, {23, 0}}) {
            const Uploaded out = poison(n, width(), to, gap());
            Matrix expected(n, width(), to, gap());
            ops().embedding_gather(ctx(), ids_there, there.view().row_range(first, count), first,
                                   out);
            reference::embedding_gather(host, ids, table.view().row_range(first, count), first,
                                        expected);
            const Matrix actual = out.download();
            EXPECT_TRUE(actual.same_bits(expected));
            EXPECT_TRUE(actual.gaps_are_intact());
        }
    }
}

TEST_P(Embedding, TakeAddsAndClearsTheRowsOfAllIdsAndChangesNoOther) {
    const int64_t n = 50;
    const std::vector<int32_t> first_ids = random_ids(n, 25);  // many of them twice
    std::vector<int32_t> second_ids(first_ids.begin(), first_ids.begin() + 20);
    for (int32_t& id : second_ids) id = (id + 9) % 40;
    const auto first_there = up(first_ids), second_there = up(second_ids);
    const std::vector<std::span<const int32_t>> ids{first_there, second_there};
    const Uploaded dy = up(random(n, type(), 1));
    for (Context* ctx : device().threads()) {
        for (const auto& [first, count] : {std::pair{0, 40}, {9, 13}, {40, 0}}) {
            SCOPED_TRACE(testing::Message() << "first row " << first);
            const Uploaded from = poison(count, width(), DType::fp32, gap());
            ops().embedding_scatter_add(*ctx, first_there, dy, first, from, false);
            ops().embedding_scatter_add(*ctx, second_there, dy.view().row_range(0, 20), first, from,
                                        true);
            auto expected = random(count, DType::fp32, 2);
            for (int64_t row = 0; row < count; ++row) {
                for (int64_t col = row % 3; col < width(); col += 3) expected.set(row, col, -0.0);
            }
            const Uploaded to = up(expected);
            Matrix expected_from = from.download();
            reference::embedding_take(host, ids, first, expected_from, expected);
            ops().embedding_take(*ctx, ids, first, from, to);
            EXPECT_TRUE(to.download().same_bits(expected));
            EXPECT_TRUE(from.download().same_bits(expected_from));
            EXPECT_TRUE(to.download().gaps_are_intact());
            EXPECT_TRUE(from.download().gaps_are_intact());
        }
    }
}

TEST_P(Embedding, PositionsRepeatPerSequenceAndMayBeAddedInPlace) {
    const int64_t sequences = 3, seq_length = 7, n = sequences * seq_length;
    const auto x = random(n, type(), 1);
    for (const DType position_type : {DType::fp32, DType::bf16}) {
        const auto wpe = random(seq_length + 2, position_type, 2);
        const Uploaded in = up(x), positions = up(wpe), y = poison(n, width(), type(), gap());
        ops().add_positions(ctx(), in, positions, seq_length, {}, y);
        Matrix exact(n, width(), DType::fp64);
        reference::add_positions(host, x, wpe, seq_length, {}, exact);
        // One addition in fp32, rounded to the type.
        expect_close(y.download(), exact, [&](int64_t row, int64_t col) {
            return (unit_roundoff(type()) + kEps32) * std::abs(exact.get(row, col));
        });
        ops().add_positions(ctx(), in, positions, seq_length, {}, in);
        EXPECT_TRUE(in.download().same_bits(y.download()));
    }
}

TEST_P(Embedding, GivenPositionsAreRowsInAnyOrderAndMayRepeat) {
    const int64_t n = 23, seq_length = 7;
    const auto x = random(n, type(), 1);
    const std::vector<int32_t> rows = random_ids(n, 9);  // two more than seq_length
    const auto rows_there = up(rows);
    for (const DType position_type : {DType::fp32, DType::bf16}) {
        const auto wpe = random(seq_length + 2, position_type, 2);
        const Uploaded in = up(x), positions = up(wpe), y = poison(n, width(), type(), gap());
        ops().add_positions(ctx(), in, positions, seq_length, rows_there, y);
        Matrix exact(n, width(), DType::fp64);
        for (int64_t row = 0; row < n; ++row) {
            for (int64_t col = 0; col < width(); ++col) {
                exact.set(row, col, x.get(row, col) + wpe.get(rows[static_cast<size_t>(row)], col));
            }
        }
        // One addition in fp32, rounded to the type.
        expect_close(y.download(), exact, [&](int64_t row, int64_t col) {
            return (unit_roundoff(type()) + kEps32) * std::abs(exact.get(row, col));
        });
        ops().add_positions(ctx(), in, positions, seq_length, rows_there, in);
        EXPECT_TRUE(in.download().same_bits(y.download()));
        EXPECT_TRUE(y.download().gaps_are_intact());
    }
}

TEST_P(Embedding, GradientOfPositionsSumsOverSequences) {
    const int64_t sequences = 3, seq_length = 7, n = sequences * seq_length;
    const auto dy = random(n, type(), 1);
    for (const bool accumulate : {false, true}) {
        const auto before = start(seq_length + 2, accumulate, 3);
        const Uploaded dwpe = up(before);
        ops().positions_gradient(ctx(), up(dy), seq_length, dwpe, accumulate);
        auto expected = before.as(DType::fp64);
        reference::positions_gradient(host, dy, seq_length, expected, accumulate);
        // At most three additions of numbers below 1 to one below 1; rows beyond stay or become 0.
        expect_close(dwpe.download(), expected,
                     [](int64_t row, int64_t) { return row < seq_length ? 3 * 4 * kEps32 : 0.0; });
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, Embedding,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes,
                                          testing::ValuesIn(kWidths)),
                         kNames);

/// One addition after the other in fp32: the reference rounds once.
using EmbeddingOrder = Embedding;

TEST_P(EmbeddingOrder, ScatterAddsRepeatedIdsInOrder) {
    const int64_t vocabulary = 11, n = 60;
    auto ids = random_ids(n, vocabulary);
    for (size_t i = 20; i < 33; ++i) ids[i] = 4;  // one long run
    const auto ids_there = up(ids);
    const auto dy = random(n, type(), 1);
    const Uploaded gradient = up(dy);
    for (const auto& [first, count] : {std::pair{0, 11}, {3, 5}, {10, 1}, {11, 0}}) {
        for (const bool accumulate : {false, true}) {
            const auto before = start(count, accumulate, 2);
            const Matrix actual = with_any_threads([&, first = first](Context& ctx) {
                const Uploaded dshard = up(before);
                ops().embedding_scatter_add(ctx, ids_there, gradient, first, dshard, accumulate);
                return dshard.download();
            });
            Matrix expected = before;
            for (int64_t row = 0; row < count; ++row) {
                for (int64_t col = 0; col < width(); ++col) {
                    float sum = accumulate ? static_cast<float>(before.get(row, col)) : -0.0F;
                    for (int64_t i = 0; i < n; ++i) {
                        if (ids[static_cast<size_t>(i)] == first + row) {
                            sum += static_cast<float>(dy.get(i, col));
                        }
                    }
                    expected.set(row, col, sum);
                }
            }
            EXPECT_TRUE(actual.same_bits(expected)) << "first row " << first;
            EXPECT_TRUE(actual.gaps_are_intact());
        }
    }
}

TEST_P(EmbeddingOrder, ScatterAddsInOrderWhereRowsTakeSeveralPassesToSort) {
    const int64_t n = 700, first = 100, count = 1900;
    auto ids = random_ids(n, 2100);
    for (size_t i = 0; i < ids.size(); i += 3) ids[i] %= 300;  // runs
    const auto dy = random(n, type(), 1);
    const Uploaded dshard = poison(count, width(), DType::fp32, gap());
    ops().embedding_scatter_add(ctx(), up(ids), up(dy), first, dshard, false);
    std::vector<float> expected(static_cast<size_t>(count * width()), -0.0F);
    for (int64_t i = 0; i < n; ++i) {
        const int64_t row = ids[static_cast<size_t>(i)] - first;
        if (row < 0 || row >= count) continue;
        for (int64_t col = 0; col < width(); ++col) {
            expected[static_cast<size_t>(row * width() + col)] +=
                static_cast<float>(dy.get(i, col));
        }
    }
    const Matrix actual = dshard.download();
    int64_t wrong = 0;
    for (int64_t i = 0; i < count * width(); ++i) {
        const auto value = static_cast<float>(actual.get(i / width(), i % width()));
        const float wanted = expected[static_cast<size_t>(i)];
        wrong += value == wanted && std::signbit(value) == std::signbit(wanted) ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_TRUE(actual.gaps_are_intact());
}

INSTANTIATE_TEST_SUITE_P(Devices, EmbeddingOrder,
                         testing::Combine(testing::ValuesIn(product_devices()), kTypes,
                                          testing::ValuesIn(kWidths)),
                         kNames);

using EmbeddingArguments = Embedding;

TEST_P(EmbeddingArguments, AreSumsAndGradientsInFp32OfOneShape) {
    const auto ids = up(random_ids(5, 4));
    const std::vector<std::span<const int32_t>> all{ids};
    const auto take = [&](int64_t rows, int64_t columns, DType from, DType to) {
        const Uploaded sums = up(random(4, from, 1));
        ops().embedding_take(ctx(), all, 0, sums, poison(rows, columns, to));
    };
    EXPECT_NO_THROW(take(4, width(), DType::fp32, DType::fp32));
    EXPECT_THROW(take(5, width(), DType::fp32, DType::fp32), UsageError);
    EXPECT_THROW(take(4, width() + 1, DType::fp32, DType::fp32), UsageError);
    EXPECT_THROW(take(4, width(), DType::bf16, DType::fp32), UsageError);
    EXPECT_THROW(take(4, width(), DType::fp32, DType::bf16), UsageError);
}

TEST_P(EmbeddingArguments, ArePositionsOfAllRowsOrOfNone) {
    const Uploaded x = up(random(6, type(), 1)), wpe = up(random(9, type(), 2));
    const auto five = up(random_ids(5, 9));
    EXPECT_THROW(ops().add_positions(ctx(), x, wpe, 3, five, x), UsageError);
    EXPECT_THROW(ops().add_positions(ctx(), x, wpe, 10, {}, x), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, EmbeddingArguments,
                         testing::Combine(testing::ValuesIn(product_devices()), kTypes,
                                          testing::ValuesIn(kWidths)),
                         kNames);

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
        reference::add_positions(ctx, gathered, wpe, 4, {}, y);
        return dot(y, dy);
    };
    Matrix dshard(rows, h, DType::fp64), dwpe(4, h, DType::fp64);
    reference::embedding_scatter_add(ctx, ids, dy, 2, dshard, false);
    reference::positions_gradient(ctx, dy, 4, dwpe, false);
    const auto bound = [](int64_t, int64_t) { return kDifferenceBound; };
    expect_close(dshard, numeric_gradient(shard, loss), bound);
    expect_close(dwpe, numeric_gradient(wpe, loss), bound);
}

}  // namespace
}  // namespace vocabpipe::kernels::test

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include "kernels/reference/operators.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"

namespace vocabpipe::kernels::test {
namespace {

std::vector<int32_t> random_ids(int64_t count, int32_t vocabulary) {
    std::mt19937 engine(7);
    std::uniform_int_distribution<int32_t> id(0, vocabulary - 1);
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (auto& value : ids) value = id(engine);
    return ids;
}

struct Case {
    DType type;
    int64_t width;
    int64_t gap;  ///< 0 with a width of whole 16-byte vectors: the fast path

    friend void PrintTo(const Case& c, std::ostream* out) {
        *out << name_of(c.type) << ", " << c.width << " columns, gap " << c.gap;
    }
};

Matrix random_matrix(int64_t rows, const Case& c, DType type, unsigned seed) {
    const Matrix values = Matrix::random(rows, c.width, type, seed);
    Matrix result(rows, c.width, type, c.gap);
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t col = 0; col < c.width; ++col) result.set(row, col, values.get(row, col));
    }
    return result;
}

class Embedding : public OnDeviceWithParam<Case> {
protected:
    Context host{{.poll = {}}};
};
class FoldRows : public OnDeviceWithParam<Case> {};

TEST_P(Embedding, GatherOfShardsGivesTheBitsOfTheReference) {
    Device device;
    const Case c = GetParam();
    const int64_t vocabulary = 23, n = 50;
    const auto ids = random_ids(n, vocabulary);
    const DeviceArray<int32_t> device_ids(device, ids);
    const auto table = random_matrix(vocabulary, c, c.type, 1);
    const DeviceMatrix device_table(device, table);
    for (const DType to : {DType::fp32, DType::bf16}) {
        for (const auto& [first, count] : {std::pair{0, 23}, {0, 9}, {9, 13}, {22, 1}, {23, 0}}) {
            const DeviceMatrix out(device, Matrix(n, c.width, to, c.gap));
            Matrix expected(n, c.width, to, c.gap);
            cuda::embedding_gather(device.context(), device_ids,
                                   device_table.view().row_range(first, count), first, out);
            reference::embedding_gather(host, ids, table.view().row_range(first, count), first,
                                        expected);
            const Matrix actual = out.download();
            EXPECT_TRUE(actual.same_bits(expected));
            EXPECT_TRUE(actual.gaps_are_intact());
        }
    }
}

TEST_P(Embedding, ScatterAddsRepeatedIdsInOrder) {
    Device device;
    const Case c = GetParam();
    const int64_t vocabulary = 11, n = 60;
    auto ids = random_ids(n, vocabulary);
    for (size_t i = 20; i < 33; ++i) ids[i] = 4;  // one long run
    const DeviceArray<int32_t> device_ids(device, ids);
    const auto dy = random_matrix(n, c, c.type, 1);
    const DeviceMatrix device_dy(device, dy);
    for (const auto& [first, count] : {std::pair{0, 11}, {3, 5}, {10, 1}, {11, 0}}) {
        for (const bool accumulate : {false, true}) {
            const auto before = accumulate ? random_matrix(count, c, DType::fp32, 2)
                                           : Matrix(count, c.width, DType::fp32, c.gap);
            const DeviceMatrix dshard(device, before);
            cuda::embedding_scatter_add(device.context(), device_ids, device_dy, first, dshard,
                                        accumulate);
            // One addition after the other in fp32, ascending: the bits of this loop.
            Matrix expected = before;
            for (int64_t row = 0; row < count; ++row) {
                for (int64_t col = 0; col < c.width; ++col) {
                    float sum = accumulate ? static_cast<float>(before.get(row, col)) : -0.0F;
                    for (int64_t i = 0; i < n; ++i) {
                        if (ids[static_cast<size_t>(i)] == first + row) {
                            sum += static_cast<float>(dy.get(i, col));
                        }
                    }
                    expected.set(row, col, sum);
                }
            }
            const Matrix actual = dshard.download();
            EXPECT_TRUE(actual.same_bits(expected)) << "first row " << first;
            EXPECT_TRUE(actual.gaps_are_intact());
        }
    }
}

TEST_P(Embedding, ScatterAddsInOrderWhereRowsTakeSeveralPassesToSort) {
    Device device;
    const Case c = GetParam();
    const int32_t vocabulary = 2100;
    const int64_t n = 700;
    auto ids = random_ids(n, vocabulary);
    for (size_t i = 0; i < ids.size(); i += 3) ids[i] %= 300;  // runs
    const DeviceArray<int32_t> device_ids(device, ids);
    const auto dy = random_matrix(n, c, c.type, 1);
    const DeviceMatrix device_dy(device, dy);
    const int64_t first = 100, count = 1900;
    const DeviceMatrix dshard(device, Matrix(count, c.width, DType::fp32, c.gap));
    cuda::embedding_scatter_add(device.context(), device_ids, device_dy, first, dshard, false);
    std::vector<float> expected(static_cast<size_t>(count * c.width));
    for (int64_t i = 0; i < n; ++i) {
        const int64_t row = ids[static_cast<size_t>(i)] - first;
        if (row < 0 || row >= count) continue;
        for (int64_t col = 0; col < c.width; ++col) {
            expected[static_cast<size_t>(row * c.width + col)] +=
                static_cast<float>(dy.get(i, col));
        }
    }
    const Matrix actual = dshard.download();
    int64_t wrong = 0;
    for (int64_t i = 0; i < count * c.width; ++i) {
        const float value = static_cast<float>(actual.get(i / c.width, i % c.width));
        wrong += value == expected[static_cast<size_t>(i)] ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_TRUE(actual.gaps_are_intact());
}

TEST_P(Embedding, ScatterRefusesMoreIdsThanTheWorkspaceSorts) {
    Device device(4096);
    const Case c = GetParam();
    const DeviceArray<int32_t> ids(device, random_ids(500, 9));
    const DeviceMatrix dy(device, random_matrix(500, c, c.type, 1));
    const DeviceMatrix dshard(device, Matrix(9, c.width, DType::fp32, c.gap));
    EXPECT_THROW(cuda::embedding_scatter_add(device.context(), ids, dy, 0, dshard, true),
                 UsageError);
}

TEST_P(Embedding, TakeAddsAndClearsWithTheBitsOfTheReference) {
    Device device;
    const Case c = GetParam();
    const auto ids = random_ids(30, 40);
    const DeviceArray<int32_t> device_ids(device, ids);
    const DeviceMatrix dy(device, random_matrix(30, c, c.type, 1));
    const DeviceMatrix from(device, Matrix(40, c.width, DType::fp32, c.gap));
    cuda::embedding_scatter_add(device.context(), device_ids, dy, 0, from, false);
    auto expected = random_matrix(40, c, DType::fp32, 2);
    for (int64_t row = 0; row < 40; row += 2) expected.set(row, 0, -0.0);
    const DeviceMatrix to(device, expected);
    Matrix expected_from = from.download();
    const std::vector<std::span<const int32_t>> all_ids{device_ids.span()};
    cuda::embedding_take(device.context(), all_ids, 0, from, to);
    reference::embedding_take(host, all_ids, 0, expected_from, expected);
    EXPECT_TRUE(to.download().same_bits(expected));
    EXPECT_TRUE(from.download().same_bits(expected_from));
    EXPECT_TRUE(to.download().gaps_are_intact());
    EXPECT_TRUE(from.download().gaps_are_intact());
}

TEST_P(Embedding, PositionsRepeatPerSequenceAndTheirGradientSumsOverSequences) {
    Device device;
    const Case c = GetParam();
    const int64_t sequences = 3, seq_length = 7, n = sequences * seq_length;
    const auto x = random_matrix(n, c, c.type, 1);
    for (const DType position_type : {DType::fp32, DType::bf16}) {
        const auto wpe = random_matrix(seq_length + 2, c, position_type, 2);
        const DeviceMatrix y(device, x);
        const DeviceMatrix device_wpe(device, wpe);
        cuda::add_positions(device.context(), y, device_wpe, seq_length, y);  // in place
        Matrix exact(n, c.width, DType::fp64);
        reference::add_positions(host, x, wpe, seq_length, exact);
        // One addition in fp32, rounded to the type.
        expect_close(y.download(), exact, [&](int64_t row, int64_t col) {
            return (unit_roundoff(c.type) + kEps32) * std::abs(exact.get(row, col));
        });
    }
    for (const bool accumulate : {false, true}) {
        const auto before = accumulate ? random_matrix(seq_length + 2, c, DType::fp32, 3)
                                       : Matrix(seq_length + 2, c.width, DType::fp32, c.gap);
        const DeviceMatrix dwpe(device, before);
        const DeviceMatrix dy(device, x);
        cuda::positions_gradient(device.context(), dy, seq_length, dwpe, accumulate);
        auto expected = before.as(DType::fp64);
        reference::positions_gradient(host, x, seq_length, expected, accumulate);
        // At most three additions of numbers below 1 to one below 1; rows beyond stay or become 0.
        expect_close(dwpe.download(), expected,
                     [](int64_t row, int64_t) { return row < seq_length ? 3 * 4 * kEps32 : 0.0; });
    }
}

TEST_P(FoldRows, AddsTheBlocksInOrder) {
    Device device;
    Context host({.poll = {}});
    const Case c = GetParam();
    for (const DType to : {DType::fp32, DType::bf16}) {
        for (const int64_t count : {1, 2, 5}) {
            const auto blocks = random_matrix(count * 7, c, c.type, 20);
            const DeviceMatrix device_blocks(device, blocks);
            const DeviceMatrix out(device, Matrix(7, c.width, to, c.gap));
            Matrix expected(7, c.width, to, c.gap);
            cuda::ordered_sum(device.context(), device_blocks, count, -1, out);
            reference::ordered_sum(host, blocks.view(), count, -1, expected.view());
            const Matrix actual = out.download();
            EXPECT_TRUE(actual.same_bits(expected));
            EXPECT_TRUE(actual.gaps_are_intact());
        }
    }
}

TEST_P(FoldRows, AddsTheOwnBlockWhereTheSumGoes) {
    Device device;
    Context host({.poll = {}});
    const Case c = GetParam();
    for (const int64_t count : {1, 2, 5}) {
        for (int64_t own = 0; own < count; ++own) {
            auto blocks = random_matrix(count * 7, c, c.type, 20);
            Matrix expected(7, c.width, c.type, c.gap);
            reference::ordered_sum(host, blocks.view(), count, -1, expected.view());
            Matrix mine(7, c.width, c.type, c.gap);
            for (int64_t row = 0; row < 7; ++row) {
                for (int64_t col = 0; col < c.width; ++col) {
                    mine.set(row, col, blocks.get(own * 7 + row, col));
                    blocks.set(own * 7 + row, col, std::nan(""));
                }
            }
            const DeviceMatrix device_blocks(device, blocks);
            const DeviceMatrix out(device, mine);
            cuda::ordered_sum(device.context(), device_blocks, count, own, out);
            const Matrix actual = out.download();
            EXPECT_TRUE(actual.same_bits(expected)) << own << " of " << count;
            EXPECT_TRUE(actual.gaps_are_intact());
        }
    }
}

std::vector<Case> cases() {
    return {{DType::fp32, 37, 3},
            {DType::fp32, 1, 0},
            {DType::fp32, 64, 8},
            {DType::bf16, 37, 3},
            {DType::bf16, 600, 0}};
}
std::string name_of_case(const testing::TestParamInfo<Case>& info) {
    return std::string(name_of(info.param.type)) + "_" + std::to_string(info.param.width) +
           "_columns_gap_" + std::to_string(info.param.gap);
}
INSTANTIATE_TEST_SUITE_P(Shapes, Embedding, testing::ValuesIn(cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Shapes, FoldRows, testing::ValuesIn(cases()), name_of_case);

class Memory : public OnDevice {};

TEST_F(Memory, ZeroAndCopyTouchTheirBytesOnly) {
    Device device;
    const DeviceArray<uint8_t> from(device, {1, 2, 3, 4, 5, 6, 7});
    const DeviceArray<uint8_t> to(device, std::vector<uint8_t>(7, 9));
    cuda::copy(device.context(), std::as_bytes(from.span()).subspan(2, 3),
               std::as_writable_bytes(to.span()).subspan(1, 3));
    cuda::set_zero(device.context(), std::as_writable_bytes(to.span()).subspan(5, 1));
    cuda::set_zero(device.context(), {});
    cuda::copy(device.context(), {}, {});
    EXPECT_EQ(to.download(), (std::vector<uint8_t>{9, 3, 4, 5, 9, 0, 9}));
}

}  // namespace
}  // namespace vocabpipe::kernels::test

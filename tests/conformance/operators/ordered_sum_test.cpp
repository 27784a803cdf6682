// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct BlockSizes {
    int64_t rows, cols, gap;
};
const BlockSizes kBlockSizes[] = {{7, 37, 3},   {7, 1, 0},   {7, 64, 8}, {7, 600, 0},
                                  {7, 1300, 5}, {7, 1300, 0}};  // rows apart, or as one run

using OrderedSum = TypedOperatorTest;

TEST_P(OrderedSum, AddsTheBlocksInOrder) {
    for (const auto& [rows, cols, gap] : kBlockSizes) {
        for (const DType to : {DType::fp32, DType::bf16}) {
            for (const int64_t count : {1, 2, 5}) {
                const auto blocks = random_with_gap(count * rows, cols, type(), gap, 20);
                Matrix expected(rows, cols, to, gap);
                reference::ordered_sum(host, blocks.view(), count, -1, expected.view());
                const Uploaded in = up(blocks), out = poison(rows, cols, to, gap);
                const Matrix actual = with_any_threads([&](Context& ctx) {
                    ops().ordered_sum(ctx, in, count, -1, out);
                    return out.download();
                });
                EXPECT_TRUE(actual.same_bits(expected));
                EXPECT_TRUE(actual.gaps_are_intact());
                if (to != DType::fp32) continue;
                float sum = 0;
                for (int64_t k = 0; k < count; ++k) {
                    sum += static_cast<float>(blocks.get(k * rows + 2, cols - 1));
                }
                EXPECT_EQ(static_cast<float>(actual.get(2, cols - 1)), sum);
            }
        }
    }
}

TEST_P(OrderedSum, AddsTheOwnBlockWhereTheSumGoes) {
    for (const auto& [rows, cols, gap] : kBlockSizes) {
        for (const int64_t count : {1, 2, 5}) {
            for (int64_t own = 0; own < count; ++own) {
                auto blocks = random_with_gap(count * rows, cols, type(), gap, 20);
                Matrix expected(rows, cols, type(), gap), mine = expected;
                reference::ordered_sum(host, blocks.view(), count, -1, expected.view());
                for (int64_t row = 0; row < rows; ++row) {
                    for (int64_t col = 0; col < cols; ++col) {
                        mine.set(row, col, blocks.get(own * rows + row, col));
                        blocks.set(own * rows + row, col, std::nan(""));
                    }
                }
                const Uploaded out = up(mine);
                ops().ordered_sum(ctx(), up(blocks), count, own, out);
                const Matrix actual = out.download();
                EXPECT_TRUE(actual.same_bits(expected)) << own << " of " << count;
                EXPECT_TRUE(actual.gaps_are_intact());
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, OrderedSum,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

using OrderedSumArguments = OperatorTest<>;

TEST_P(OrderedSumArguments, TheOwnBlockIsOneOfThemAndOfTheirType) {
    const Uploaded blocks = poison(2, 5, DType::bf16);
    const Uploaded sum = poison(1, 5, DType::fp32), narrow = poison(1, 5, DType::bf16);
    EXPECT_THROW(ops().ordered_sum(ctx(), blocks, 2, 0, sum), UsageError);
    EXPECT_THROW(ops().ordered_sum(ctx(), blocks, 2, 2, narrow), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, OrderedSumArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

}  // namespace
}  // namespace vocabpipe::kernels::test

// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

using ColumnSums = TypedOperatorTest;

TEST_P(ColumnSums, AgreeWithTheReferenceAndAccumulate) {
    struct Size {
        int64_t rows, cols, gap;
    };
    for (const auto& [rows, cols, gap] :
         {Size{0, 5, 3}, {1, 1, 3}, {3, 17, 3}, {5, 64, 8}, {1030, 24, 0}}) {
        for (const bool accumulate : {false, true}) {
            SCOPED_TRACE(testing::Message() << rows << " x " << cols << ", " << accumulate);
            const auto x = random_with_gap(rows, cols, type(), gap, 1);
            const Matrix start = start_of_sum(1, cols, accumulate, 2);
            Matrix exact = start.as(DType::fp64), size = start.magnitude();
            reference::column_sums(host, x, exact, accumulate);
            reference::column_sums(host, x.magnitude(), size, accumulate);
            const Uploaded sums = up(start);
            ops().column_sums(ctx(), up(x), sums, accumulate);
            expect_close(sums.download(), exact, sum_bound(size, exact, rows + 1, DType::fp32));
        }
    }
}

TEST_P(ColumnSums, BitsAreTheSameForAnyThreads) {
    const Uploaded x = up(Matrix::random(500, 300, type(), 1));
    expect_same_bits_with_any_threads([&](Context& ctx) {
        const Uploaded sums = poison(1, 300, DType::fp32);
        ops().column_sums(ctx, x, sums, false);
        return std::vector{sums.download()};
    });
}

INSTANTIATE_TEST_SUITE_P(Devices, ColumnSums,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

using ColumnSumsArguments = OperatorTest<>;

TEST_P(ColumnSumsArguments, AreOneFp32SumPerColumn) {
    const Uploaded x = up(Matrix::random(3, 4, DType::fp32, 1));
    const auto sum = [&](int64_t rows, int64_t cols, DType type) {
        ops().column_sums(ctx(), x, up(Matrix::random(rows, cols, type, 1)), false);
    };
    EXPECT_THROW(sum(1, 5, DType::fp32), UsageError);
    EXPECT_THROW(sum(2, 4, DType::fp32), UsageError);
    EXPECT_THROW(sum(1, 4, DType::bf16), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, ColumnSumsArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

}  // namespace
}  // namespace vocabpipe::kernels::test

// SPDX-License-Identifier: Apache-2.0
// Means of groups of rows, their gradient, and columns of tokens as rows.
#include "tests/conformance/operator_test.hpp"
#include "tests/conformance/random_numbers.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct RowGroupSizes {
    int64_t groups, count, cols, gap;
};
const RowGroupSizes kRowGroupSizes[] = {
    {1, 1, 1, 0},     {1, 7, 10, 3},
    {5, 64, 1, 0},    {3, 7, 1000, 8},  // whole vectors
    {2, 1, 1000, 3},  {7, 64, 10, 3},
    {4, 64, 1000, 0}, {9, 7, 1300, 3},  // more than a strip, and worth two threads
    {0, 7, 10, 3}};

using RowGroups = TypedOperatorTest;

TEST_P(RowGroups, MeansAddRowsInOrderAndAreRoundedOnce) {
    for (const auto& [groups, count, cols, gap] : kRowGroupSizes) {
        SCOPED_TRACE(testing::Message() << groups << " of " << count << ", " << cols);
        const auto x = random_with_gap(groups * count, cols, type(), gap, 1);
        Matrix expected(groups, cols, type(), gap);
        reference::mean_rows(host, x, count, expected);
        const Uploaded rows = up(x);
        const Matrix actual = with_any_threads(
            [&, groups = groups, count = count, cols = cols, gap = gap](Context& ctx) {
                const Uploaded y = poison(groups, cols, type(), gap);
                ops().mean_rows(ctx, rows, count, y);
                return y.download();
            });
        EXPECT_TRUE(actual.same_bits(expected));
        EXPECT_TRUE(actual.gaps_are_intact());
        if (type() != DType::fp32 || groups == 0) continue;
        float sum = 0;
        for (int64_t i = 0; i < count; ++i) {
            sum += static_cast<float>(x.get((groups - 1) * count + i, cols - 1));
        }
        EXPECT_EQ(static_cast<float>(actual.get(groups - 1, cols - 1)),
                  sum / static_cast<float>(count));
    }
}

TEST_P(RowGroups, EveryRowGetsItsShareOfTheGradient) {
    for (const auto& [groups, count, cols, gap] : kRowGroupSizes) {
        SCOPED_TRACE(testing::Message() << groups << " of " << count << ", " << cols);
        const auto dy = random_with_gap(groups, cols, type(), gap, 2);
        Matrix expected(groups * count, cols, type(), gap);
        reference::spread_rows(host, dy, count, expected);
        const Uploaded gradient = up(dy);
        const Matrix actual = with_any_threads(
            [&, groups = groups, count = count, cols = cols, gap = gap](Context& ctx) {
                const Uploaded dx = poison(groups * count, cols, type(), gap);
                ops().spread_rows(ctx, gradient, count, dx);
                return dx.download();
            });
        EXPECT_TRUE(actual.same_bits(expected));
        EXPECT_TRUE(actual.gaps_are_intact());
        if (type() != DType::fp32 || groups == 0) continue;
        EXPECT_EQ(static_cast<float>(actual.get(groups * count - 1, cols - 1)),
                  static_cast<float>(dy.get(groups - 1, cols - 1)) / static_cast<float>(count));
    }
}

TEST_P(RowGroups, ColumnsOfTokensBecomeRows) {
    for (const auto& [tokens, cols] : {std::pair{0, 10},
                                       {1, 1},
                                       {1, 1000},
                                       {5, 10},
                                       {33, 65},
                                       {64, 64},
                                       {100, 1},
                                       {3, 0},
                                       {1000, 37}}) {
        for (const int64_t gap : {0, 3}) {
            SCOPED_TRACE(testing::Message() << tokens << " tokens, " << cols);
            const auto numbers = random_numbers(int64_t{tokens} * cols, 3);
            const auto columns = up(numbers);
            const Matrix actual = with_any_threads([&, tokens = tokens, cols = cols](Context& ctx) {
                const Uploaded y = poison(tokens, cols, type(), gap);
                ops().columns_to_rows(ctx, columns, tokens, y);
                return y.download();
            });
            Matrix expected(tokens, cols, type(), gap);
            for (int64_t n = 0; n < tokens; ++n) {
                for (int64_t j = 0; j < cols; ++j) {
                    expected.set(n, j,
                                 static_cast<double>(numbers[static_cast<size_t>(j * tokens + n)]));
                }
            }
            EXPECT_TRUE(actual.same_bits(expected));
            EXPECT_TRUE(actual.gaps_are_intact());
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, RowGroups,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

using RowGroupsArguments = OperatorTest<>;

TEST_P(RowGroupsArguments, FitTogether) {
    const Uploaded four = poison(4, 3, DType::fp32), two = poison(2, 3, DType::fp32);
    const Uploaded wide = poison(2, 4, DType::fp32), other = poison(2, 3, DType::bf16);
    EXPECT_THROW(ops().mean_rows(ctx(), four, 0, two), UsageError);
    EXPECT_THROW(ops().mean_rows(ctx(), four, 1, two), UsageError);
    EXPECT_THROW(ops().mean_rows(ctx(), four, 2, wide), UsageError);
    EXPECT_THROW(ops().mean_rows(ctx(), four, 2, other), UsageError);
    EXPECT_THROW(ops().spread_rows(ctx(), two, 0, four), UsageError);
    EXPECT_THROW(ops().spread_rows(ctx(), two, 3, four), UsageError);
    EXPECT_THROW(ops().spread_rows(ctx(), wide, 2, four), UsageError);
    EXPECT_THROW(ops().spread_rows(ctx(), other, 2, four), UsageError);
    const auto six = up(std::vector<float>(6));
    EXPECT_THROW(ops().columns_to_rows(ctx(), six, 3, two), UsageError);
    EXPECT_THROW(ops().columns_to_rows(ctx(), six, 2, wide), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, RowGroupsArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

TEST(ReferenceRowGroups, GradientIsThatOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    auto x = Matrix::random(6, 4, DType::fp64, 1);
    const auto dy = Matrix::random(2, 4, DType::fp64, 2);
    Matrix dx(6, 4, DType::fp64);
    reference::spread_rows(ctx, dy, 3, dx);
    const auto loss = [&] {
        Matrix y(2, 4, DType::fp64);
        reference::mean_rows(ctx, x, 3, y);
        return dot(y, dy);
    };
    expect_close(dx, numeric_gradient(x, loss), [](int64_t, int64_t) { return kDifferenceBound; });
}

}  // namespace
}  // namespace vocabpipe::kernels::test

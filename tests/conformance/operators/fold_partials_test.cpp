// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct FoldSizes {
    int64_t rows, cols, gap;
};
const FoldSizes kFoldSizes[] = {{7, 37, 3},
                                {7, 64, 8},      // whole vectors
                                {37, 1300, 3}};  // more than a strip, and worth two threads

using FoldPartials = TypedOperatorTest;

TEST_P(FoldPartials, AddsMembersThenBiasThenResidualWhichMayBeTheResult) {
    for (const auto& [rows, cols, gap] : kFoldSizes) {
        for (const int64_t count : {1, 2, 5}) {
            for (const int what : {0, 1, 2, 3}) {
                SCOPED_TRACE(testing::Message() << cols << " columns, " << count << ", " << what);
                const bool with_bias = (what & 1) != 0, with_residual = (what & 2) != 0;
                const auto partials = random_with_gap(count * rows, cols, type(), gap, 1);
                const auto bias = random_with_gap(1, cols, type(), gap, 2);
                const auto residual = random_with_gap(rows, cols, type(), gap, 3);
                Matrix expected(rows, cols, type(), gap);
                reference::fold_partials(host, partials, count,
                                         with_bias ? bias.view() : ConstTensor(),
                                         with_residual ? residual.view() : ConstTensor(), expected);
                const Uploaded members = up(partials), on_device = up(bias), out = up(residual);
                const ConstTensor some_bias = with_bias ? ConstTensor(on_device) : ConstTensor();
                const ConstTensor some_residual = with_residual ? ConstTensor(out) : ConstTensor();
                const Matrix actual =
                    with_any_threads([&, rows = rows, cols = cols, gap = gap](Context& ctx) {
                        const Uploaded apart = poison(rows, cols, type(), gap);
                        ops().fold_partials(ctx, members, count, some_bias, some_residual, apart);
                        return apart.download();
                    });
                EXPECT_TRUE(actual.same_bits(expected));
                EXPECT_TRUE(actual.gaps_are_intact());
                ops().fold_partials(ctx(), members, count, some_bias, some_residual, out);
                EXPECT_TRUE(out.download().same_bits(expected)) << "in place of the residual";
                if (type() != DType::fp32) continue;
                float sum = 0;
                for (int64_t member = 0; member < count; ++member) {
                    sum += static_cast<float>(partials.get(member * rows + 3, cols - 1));
                }
                if (with_bias) sum += static_cast<float>(bias.get(0, cols - 1));
                if (with_residual) sum += static_cast<float>(residual.get(3, cols - 1));
                EXPECT_EQ(static_cast<float>(actual.get(3, cols - 1)), sum);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, FoldPartials,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

using FoldArguments = OperatorTest<>;

TEST_P(FoldArguments, FitTogether) {
    const Uploaded partials = poison(4, 3, DType::fp32), out = poison(2, 3, DType::fp32);
    const Uploaded wide = poison(2, 4, DType::fp32), other = poison(2, 3, DType::bf16);
    const Uploaded bias = poison(1, 4, DType::fp32);
    const auto fold = ops().fold_partials;
    EXPECT_THROW(fold(ctx(), partials, 0, {}, {}, out), UsageError);
    EXPECT_THROW(fold(ctx(), partials, 3, {}, {}, out), UsageError);
    EXPECT_THROW(fold(ctx(), partials, 2, {}, {}, wide), UsageError);
    EXPECT_THROW(fold(ctx(), partials, 2, {}, {}, other), UsageError);
    EXPECT_THROW(fold(ctx(), partials, 2, bias, {}, out), UsageError);
    EXPECT_THROW(fold(ctx(), partials, 2, {}, wide, out), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, FoldArguments,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

TEST(ReferenceFoldPartials, InFp64IsExactUpToFp64) {
    Context ctx({.poll = {}});
    const auto partials = Matrix::random(6, 5, DType::fp64, 1);
    Matrix out(2, 5, DType::fp64);
    reference::fold_partials(ctx, partials, 3, {}, {}, out);
    EXPECT_EQ(out.get(1, 4), partials.get(1, 4) + partials.get(3, 4) + partials.get(5, 4));
}

}  // namespace
}  // namespace vocabpipe::kernels::test

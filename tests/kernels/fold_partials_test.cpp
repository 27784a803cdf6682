// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/host/operators.hpp"
#include "kernels/reference/operators.hpp"
#include "tests/kernels/matrix.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

constexpr int64_t kFoldRows = 37, kFoldCols = 1300;  // more than a strip, and worth two threads

TEST(FoldPartials, AddsMembersThenBiasThenResidual) {
    for (const DType type : {DType::fp32, DType::bf16}) {
        for (const int64_t count : {1, 2, 5}) {
            for (const int what : {0, 1, 2, 3}) {
                SCOPED_TRACE(testing::Message() << name_of(type) << " " << count << " " << what);
                const auto partials = Matrix::random(count * kFoldRows, kFoldCols, type, 1);
                const auto bias = Matrix::random(1, kFoldCols, type, 2);
                const auto residual = Matrix::random(kFoldRows, kFoldCols, type, 3);
                const ConstTensor with_bias = (what & 1) != 0 ? bias.view() : ConstTensor();
                const ConstTensor with_residual = (what & 2) != 0 ? residual.view() : ConstTensor();
                Matrix actual(kFoldRows, kFoldCols, type), expected(kFoldRows, kFoldCols, type);
                for (const int threads : {1, 2}) {
                    Context ctx({.threads = threads, .poll = {}});
                    host::fold_partials(ctx, partials, count, with_bias, with_residual, actual);
                    reference::fold_partials(ctx, partials, count, with_bias, with_residual,
                                             expected);
                    EXPECT_TRUE(actual.same_bits(expected));
                }
                EXPECT_TRUE(actual.gaps_are_intact());
                float sum = 0;
                for (int64_t member = 0; member < count; ++member) {
                    sum += static_cast<float>(partials.get(member * kFoldRows + 3, 1299));
                }
                if ((what & 1) != 0) sum += static_cast<float>(bias.get(0, 1299));
                if ((what & 2) != 0) sum += static_cast<float>(residual.get(3, 1299));
                if (type == DType::fp32) {
                    EXPECT_EQ(static_cast<float>(actual.get(3, 1299)), sum);
                }
            }
        }
    }
}

TEST(FoldPartials, ResidualMayBeTheResult) {
    Context ctx({.poll = {}});
    const auto partials = Matrix::random(2 * kFoldRows, kFoldCols, DType::bf16, 1);
    auto residual = Matrix::random(kFoldRows, kFoldCols, DType::bf16, 2);
    Matrix expected(kFoldRows, kFoldCols, DType::bf16);
    host::fold_partials(ctx, partials, 2, {}, residual.view(), expected);
    host::fold_partials(ctx, partials, 2, {}, residual.view(), residual);
    EXPECT_TRUE(residual.same_bits(expected));
}

TEST(FoldPartials, InFp64IsExactUpToFp64) {
    Context ctx({.poll = {}});
    const auto partials = Matrix::random(6, 5, DType::fp64, 1);
    Matrix out(2, 5, DType::fp64);
    reference::fold_partials(ctx, partials, 3, {}, {}, out);
    EXPECT_EQ(out.get(1, 4), partials.get(1, 4) + partials.get(3, 4) + partials.get(5, 4));
}

TEST(FoldPartials, RefusesWrongArguments) {
    Context ctx({.poll = {}});
    Matrix partials(4, 3, DType::fp32), out(2, 3, DType::fp32), wide(2, 4, DType::fp32);
    Matrix other(2, 3, DType::bf16), bias(1, 4, DType::fp32);
    EXPECT_THROW(host::fold_partials(ctx, partials, 0, {}, {}, out), UsageError);
    EXPECT_THROW(host::fold_partials(ctx, partials, 3, {}, {}, out), UsageError);
    EXPECT_THROW(host::fold_partials(ctx, partials, 2, {}, {}, wide), UsageError);
    EXPECT_THROW(host::fold_partials(ctx, partials, 2, {}, {}, other), UsageError);
    EXPECT_THROW(host::fold_partials(ctx, partials, 2, bias.view(), {}, out), UsageError);
    EXPECT_THROW(host::fold_partials(ctx, partials, 2, {}, wide.view(), out), UsageError);
}

}  // namespace
}  // namespace vocabpipe::kernels::test

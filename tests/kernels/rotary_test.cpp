// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <gtest/gtest.h>

#include "kernels/reference/operators.hpp"
#include "tests/kernels/matrix.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct RotaryCase {
    AttentionShape shape;
    int64_t rotated;  ///< columns of a head
};
const RotaryCase kRotaryCases[] = {
    {{.sequences = 1, .seq_length = 1, .heads = 1, .head_size = 2, .kv_heads = 1}, 2},
    {{.sequences = 2, .seq_length = 5, .heads = 4, .head_size = 6, .kv_heads = 2}, 6},
    {{.sequences = 3, .seq_length = 7, .heads = 3, .head_size = 64, .kv_heads = 1}, 64},
    {{.sequences = 2, .seq_length = 5, .heads = 4, .head_size = 7, .kv_heads = 2}, 2},
    {{.sequences = 3, .seq_length = 7, .heads = 3, .head_size = 80, .kv_heads = 3}, 20},
};

/// Longer than the sequences; cosines and sines of made-up angles.
Matrix angles(const AttentionShape& shape, int64_t rotated) {
    Matrix table(shape.seq_length + 2, rotated, DType::fp32);
    const int64_t half = rotated / 2;
    for (int64_t t = 0; t < table.rows(); ++t) {
        for (int64_t i = 0; i < half; ++i) {
            const double angle = 0.3 + static_cast<double>(t) / static_cast<double>(i + 1);
            table.set(t, i, std::cos(angle));
            table.set(t, half + i, std::sin(angle));
        }
    }
    return table;
}

class RotaryOfType : public testing::TestWithParam<DType> {
protected:
    Context ctx{{.threads = 1, .poll = {}}};
};

TEST_P(RotaryOfType, AgreesWithTheReferenceInBothDirectionsAndKeepsTheRest) {
    const DType type = GetParam();
    for (const auto& [shape, rotated] : kRotaryCases) {
        SCOPED_TRACE(testing::Message() << rotated << " columns of heads of " << shape.head_size);
        const auto table = angles(shape, rotated);
        const auto before = Matrix::random(shape.tokens(), shape.qkv_columns(), type, 1);
        const int64_t v = shape.query_columns() + shape.kv_columns();
        for (const bool forward : {true, false}) {
            auto actual = before.as(type), exact = before.as(DType::fp64);
            (forward ? host::rotary_forward : host::rotary_backward)(ctx, table, shape, actual);
            (forward ? reference::rotary_forward : reference::rotary_backward)(ctx, table, shape,
                                                                               exact);
            // |a c| + |b s| <= 2, a rounding of each and of their sum
            expect_close(actual, exact, [&](int64_t row, int64_t col) {
                if (col >= v || col % shape.head_size >= rotated) return 0.0;
                return 4 * kEps32 + unit_roundoff(type) * std::abs(exact.get(row, col)) * 1.01;
            });
        }
    }
}

TEST_P(RotaryOfType, BackwardUndoesForwardWhereRowsOfTheTableAreAngles) {
    const DType type = GetParam();
    const AttentionShape& shape = kRotaryCases[2].shape;
    const auto table = angles(shape, shape.head_size);
    const auto before = Matrix::random(shape.tokens(), shape.qkv_columns(), type, 1);
    auto qkv = before.as(type);
    host::rotary_forward(ctx, table, shape, qkv);
    EXPECT_FALSE(qkv.same_bits(before));
    host::rotary_backward(ctx, table, shape, qkv);
    // c and s are rounded, too; two elements of magnitude up to sqrt(2) were rounded in between
    expect_close(qkv, before,
                 [&](int64_t, int64_t) { return 16 * kEps32 + 4 * unit_roundoff(type); });
}

TEST_P(RotaryOfType, BitsAreTheSameForOneAndTwoThreads) {
    const DType type = GetParam();
    const AttentionShape shape{
        .sequences = 3, .seq_length = 37, .heads = 6, .head_size = 80, .kv_heads = 2};
    const auto table = angles(shape, 46);
    auto one = Matrix::random(shape.tokens(), shape.qkv_columns(), type, 1), two = one;
    Context pair({.threads = 2, .poll = {}});
    host::rotary_forward(ctx, table, shape, one);
    host::rotary_forward(pair, table, shape, two);
    EXPECT_TRUE(one.same_bits(two));
    host::rotary_backward(ctx, table, shape, one);
    host::rotary_backward(pair, table, shape, two);
    EXPECT_TRUE(one.same_bits(two));
}

INSTANTIATE_TEST_SUITE_P(Types, RotaryOfType, testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) { return name_of(info.param); });

TEST(Rotary, RefusesATableShorterThanTheSequences) {
    Context ctx({.threads = 1, .poll = {}});
    const AttentionShape& shape = kRotaryCases[1].shape;
    const auto table = angles(shape, shape.head_size);
    auto qkv = Matrix::random(shape.tokens(), shape.qkv_columns(), DType::fp32, 1);
    EXPECT_THROW(host::rotary_forward(ctx, table.view().row_range(0, 4), shape, qkv), UsageError);
}

TEST(ReferenceRotary, GradientIsThatOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    for (const size_t i : {1U, 3U}) {
        const auto& [shape, rotated] = kRotaryCases[i];
        // no angles: then backward is the transposed of forward, not its inverse
        const auto table = Matrix::random(shape.seq_length, rotated, DType::fp64, 1);
        auto qkv = Matrix::random(shape.tokens(), shape.qkv_columns(), DType::fp64, 2);
        auto dqkv = Matrix::random(shape.tokens(), shape.qkv_columns(), DType::fp64, 3);
        const auto after = dqkv;
        const auto loss = [&] {
            auto turned = qkv;
            reference::rotary_forward(ctx, table, shape, turned);
            return dot(turned, after);
        };
        reference::rotary_backward(ctx, table, shape, dqkv);
        expect_close(dqkv, numeric_gradient(qkv, loss),
                     [](int64_t, int64_t) { return kDifferenceBound; });
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test

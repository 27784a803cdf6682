// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

struct RotaryCase {
    AttentionShape shape;
    int64_t rotated;  ///< columns of a head
    int64_t gap;
};
const RotaryCase kRotaryCases[] = {
    {{.sequences = 1, .seq_length = 1, .heads = 1, .head_size = 2, .kv_heads = 1}, 2, 3},
    {{.sequences = 2, .seq_length = 5, .heads = 4, .head_size = 6, .kv_heads = 2}, 6, 3},
    {{.sequences = 3, .seq_length = 7, .heads = 3, .head_size = 64, .kv_heads = 1}, 64, 8},
    {{.sequences = 2, .seq_length = 5, .heads = 4, .head_size = 7, .kv_heads = 2}, 2, 3},
    {{.sequences = 3, .seq_length = 7, .heads = 3, .head_size = 80, .kv_heads = 3}, 20, 3},
    {{.sequences = 1, .seq_length = 9, .heads = 2, .head_size = 256, .kv_heads = 1}, 256, 0},
    {{.sequences = 2, .seq_length = 5, .heads = 3, .head_size = 7, .kv_heads = 1}, 4, 3},
    {{.sequences = 3, .seq_length = 4, .heads = 4, .head_size = 64, .kv_heads = 4}, 16, 8},
    // Rotated halves of whole vectors, but not the heads.
    {{.sequences = 2, .seq_length = 3, .heads = 4, .head_size = 20, .kv_heads = 2}, 16, 0},
    // Enough for several threads.
    {{.sequences = 3, .seq_length = 37, .heads = 6, .head_size = 80, .kv_heads = 2}, 46, 3},
};

/// Cosines and sines of made-up angles, of two positions more than the sequences have.
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

using Rotary = TypedOperatorTest;

TEST_P(Rotary, RotatesQAndKByTheirPositionAndLeavesTheRest) {
    for (const auto& [shape, rotated, gap] : kRotaryCases) {
        // No rotation in the second table, so that c and s cannot be mixed up.
        for (const Matrix& table :
             {angles(shape, rotated),
              random_with_gap(shape.seq_length + 2, rotated, DType::fp32, gap, 1, 0.25, 1.0)}) {
            for (const bool forward : {true, false}) {
                SCOPED_TRACE(testing::Message() << rotated << " of " << shape.head_size << ", "
                                                << (forward ? "forward" : "backward"));
                const auto qkv =
                    random_with_gap(shape.tokens(), shape.qkv_columns(), type(), gap, 2);
                auto exact = qkv.as(DType::fp64);
                (forward ? reference::rotary_forward : reference::rotary_backward)(host, table,
                                                                                   shape, exact);
                const Uploaded on_device = up(table);
                const Matrix result = with_any_threads([&, shape = shape](Context& ctx) {
                    const Uploaded rotates = up(qkv);
                    (forward ? ops().rotary_forward : ops().rotary_backward)(ctx, on_device, shape,
                                                                             rotates);
                    return rotates.download();
                });
                // |a c| + |b s| <= 2, a rounding of each and of their sum
                expect_close(
                    result, exact, [&, shape = shape, rotated = rotated](int64_t row, int64_t col) {
                        const bool v = col >= shape.query_columns() + shape.key_columns();
                        if (v || col % shape.head_size >= rotated) return 0.0;
                        return 4 * kEps32 +
                               unit_roundoff(type()) * std::abs(exact.get(row, col)) * 1.01;
                    });
            }
        }
    }
}

TEST_P(Rotary, BackwardUndoesForwardWhereRowsOfTheTableAreAngles) {
    const AttentionShape& shape = kRotaryCases[2].shape;
    const auto before = Matrix::random(shape.tokens(), shape.qkv_columns(), type(), 1);
    const Uploaded table = up(angles(shape, shape.head_size)), qkv = up(before);
    ops().rotary_forward(ctx(), table, shape, qkv);
    EXPECT_FALSE(qkv.download().same_bits(before));
    ops().rotary_backward(ctx(), table, shape, qkv);
    // c and s are rounded, too; two elements of magnitude up to sqrt(2) were rounded in between
    expect_close(qkv.download(), before,
                 [&](int64_t, int64_t) { return 16 * kEps32 + 4 * unit_roundoff(type()); });
}

INSTANTIATE_TEST_SUITE_P(Devices, Rotary,
                         testing::Combine(testing::ValuesIn(devices_under_test()), kTypes), kNames);

using RotaryArguments = TypedOperatorTest;

TEST_P(RotaryArguments, TheTableIsAsLongAsTheSequences) {
    const AttentionShape& shape = kRotaryCases[1].shape;
    const Uploaded table = up(angles(shape, shape.head_size));
    const Uploaded qkv = up(Matrix::random(shape.tokens(), shape.qkv_columns(), type(), 1));
    EXPECT_THROW(ops().rotary_forward(ctx(), table.view().row_range(0, 4), shape, qkv), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Devices, RotaryArguments,
                         testing::Combine(testing::ValuesIn(product_devices()), kTypes), kNames);

TEST(ReferenceRotary, GradientIsThatOfFiniteDifferences) {
    Context ctx({.threads = 1, .poll = {}});
    for (const size_t i : {1U, 3U}) {
        const auto& [shape, rotated, gap] = kRotaryCases[i];
        // no angles: then backward is the transposed of forward, not its inverse
        const auto table = Matrix::random(shape.seq_length, rotated, DType::fp64, 1);
        auto qkv = Matrix::random(shape.tokens(), shape.qkv_columns(), DType::fp64, 2);
        auto dqkv = Matrix::random(shape.tokens(), shape.qkv_columns(), DType::fp64, 3);
        const auto after = dqkv;
        const auto loss = [&, &shape = shape] {
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

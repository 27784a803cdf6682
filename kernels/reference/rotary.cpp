// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

namespace {

/// direction: 1 rotates, -1 back.
void rotate(Context& ctx, ConstTensor table, const AttentionShape& shape, double direction,
            Tensor qkv) {
    const int64_t half = table.cols / 2;
    for (int64_t n = 0; n < qkv.rows; ++n) {
        const int64_t t = n % shape.seq_length;
        for (int64_t head = 0; head < shape.heads + shape.kv_heads; ++head) {
            for (int64_t i = 0; i < half; ++i) {
                const int64_t low = head * shape.head_size + i;
                const double c = get(table, t, i);
                const double s = direction * get(table, t, half + i);
                const double a = get(qkv, n, low);
                const double b = get(qkv, n, low + half);
                set(qkv, n, low, a * c - b * s);
                set(qkv, n, low + half, b * c + a * s);
            }
        }
    }
    ctx.poll();
}

}  // namespace

void rotary_forward(Context& ctx, ConstTensor table, const AttentionShape& shape, Tensor qkv) {
    rotate(ctx, table, shape, 1, qkv);
}

void rotary_backward(Context& ctx, ConstTensor table, const AttentionShape& shape, Tensor dqkv) {
    rotate(ctx, table, shape, -1, dqkv);
}

}  // namespace vocabpipe::kernels::reference

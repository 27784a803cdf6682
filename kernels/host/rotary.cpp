// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include "kernels/attention_checks.hpp"
#include "kernels/bf16.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// direction: 1 rotates, -1 back.
void rotate(Context& ctx, ConstTensor table, const AttentionShape& shape, float direction,
            Tensor qkv) {
    require_rotary(table, shape, qkv);
    const int64_t rotated = shape.query_columns() + shape.key_columns();
    const int64_t half = table.cols / 2;
    with_type(qkv.dtype, [&]<typename T>() {
        parallel_ranges(ctx, qkv.rows, qkv.rows * rotated, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const float* c = table.as<float>() + row % shape.seq_length * table.stride;
                const float* s = c + half;
                T* low = qkv.as<T>() + row * qkv.stride;
                for (T* const stop = low + rotated; low < stop; low += shape.head_size) {
                    T* high = low + half;
#pragma omp simd
                    for (int64_t i = 0; i < half; ++i) {
                        const float a = to_float(low[i]);
                        const float b = to_float(high[i]);
                        const float sine = direction * s[i];
                        low[i] = from_float<T>(a * c[i] - b * sine);
                        high[i] = from_float<T>(b * c[i] + a * sine);
                    }
                }
            }
        });
    });
}

}  // namespace

void rotary_forward(Context& ctx, ConstTensor table, const AttentionShape& shape, Tensor qkv) {
    rotate(ctx, table, shape, 1.0F, qkv);
}

void rotary_backward(Context& ctx, ConstTensor table, const AttentionShape& shape, Tensor dqkv) {
    rotate(ctx, table, shape, -1.0F, dqkv);
}

}  // namespace vocabpipe::kernels::host

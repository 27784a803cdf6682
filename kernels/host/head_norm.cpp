// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>
#include <array>

#include "kernels/host/parallel.hpp"
#include "kernels/host/rms_norm_row.hpp"
#include "kernels/norm_checks.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// Columns of gamma's gradient that one thread sums at a time.
constexpr int64_t kStrip = 64;

int64_t normed_heads(const AttentionShape& shape) {
    return shape.heads + shape.kv_heads;
}

/// Calls row(n, v, count) for every token: its v has `count` columns from column v on.
template <typename Row>
void for_each_row(Context& ctx, const AttentionShape& shape, Row&& row) {
    const int64_t tokens = shape.tokens();
    parallel_ranges(ctx, tokens, tokens * shape.qkv_columns(), [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) {
            row(n, shape.query_columns() + shape.key_columns(), shape.value_columns());
        }
    });
}

}  // namespace

void head_norm_forward(Context& ctx, ConstTensor qkv, ConstTensor gamma_q, ConstTensor gamma_k,
                       const RmsNormOptions& options, const AttentionShape& shape, Tensor out,
                       Tensor statistics) {
    require_head_norm(qkv, out, statistics, shape);
    require_head_gammas(gamma_q, gamma_k, shape, qkv.dtype);
    const auto size = static_cast<float>(shape.head_size);
    with_type(qkv.dtype, [&]<typename T>() {
        for_each_row(ctx, shape, [&](int64_t n, int64_t v, int64_t count) {
            const T* from = qkv.as<T>() + n * qkv.stride;
            T* to = out.as<T>() + n * out.stride;
            float* inverse_rms = statistics.as<float>() + n * statistics.stride;
            for (int64_t head = 0; head < normed_heads(shape); ++head) {
                const T* gamma = (head < shape.heads ? gamma_q : gamma_k).as<T>();
                const int64_t at = head * shape.head_size;
                const float mean = row_squares(from + at, shape.head_size) / size;
                inverse_rms[head] = rms_norm_row<false, T>(from + at, gamma, options, mean, nullptr,
                                                           shape.head_size, to + at);
            }
            std::copy_n(from + v, count, to + v);
        });
    });
}

void head_norm_backward_input(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor gamma_q,
                              ConstTensor gamma_k, const RmsNormOptions& options,
                              ConstTensor statistics, const AttentionShape& shape, Tensor dqkv) {
    require_head_norm(qkv, dout, statistics, shape);
    require_head_norm(qkv, dqkv, statistics, shape);
    require_head_gammas(gamma_q, gamma_k, shape, qkv.dtype);
    const auto size = static_cast<float>(shape.head_size);
    with_type(qkv.dtype, [&]<typename T>() {
        for_each_row(ctx, shape, [&](int64_t n, int64_t v, int64_t count) {
            const T* gradient = dout.as<T>() + n * dout.stride;
            const T* before = qkv.as<T>() + n * qkv.stride;
            const float* inverse_rms = statistics.as<float>() + n * statistics.stride;
            T* to = dqkv.as<T>() + n * dqkv.stride;
            for (int64_t head = 0; head < normed_heads(shape); ++head) {
                const T* gamma = (head < shape.heads ? gamma_q : gamma_k).as<T>();
                const int64_t at = head * shape.head_size;
                const float mean_gz =
                    row_gz(gradient + at, before + at, gamma, options.weight_offset,
                           inverse_rms[head], shape.head_size) /
                    size;
                rms_norm_backward_row<false, T>(gradient + at, before + at, gamma, options,
                                                inverse_rms[head], mean_gz, nullptr,
                                                shape.head_size, to + at);
            }
            std::copy_n(gradient + v, count, to + v);
        });
    });
}

void head_norm_backward_weight(Context& ctx, ConstTensor dout, ConstTensor qkv,
                               ConstTensor statistics, const AttentionShape& shape, Tensor dgamma_q,
                               Tensor dgamma_k, bool accumulate) {
    require_head_norm(qkv, dout, statistics, shape);
    require_head_gammas(dgamma_q, dgamma_k, shape, DType::fp32);
    const int64_t d = shape.head_size;
    with_type(qkv.dtype, [&]<typename T>() {
        // dgamma (d) of the heads [first, last), columns [begin, end), end - begin <= kStrip.
        const auto add_heads = [&](int64_t first, int64_t last, int64_t begin, int64_t end,
                                   float* dgamma) {
            if (!accumulate) std::fill(dgamma + begin, dgamma + end, 0.0F);
            std::array<float, kStrip> of_token;  // two short sums lose less than a long one
            for (int64_t n = 0; n < qkv.rows; ++n) {
                const float* inverse_rms = statistics.as<float>() + n * statistics.stride;
                of_token.fill(0.0F);
                for (int64_t head = first; head < last; ++head) {
                    const T* gradient = dout.as<T>() + n * dout.stride + head * d + begin;
                    const T* before = qkv.as<T>() + n * qkv.stride + head * d + begin;
                    const float factor = inverse_rms[head];
#pragma omp simd
                    for (int64_t i = 0; i < end - begin; ++i) {
                        of_token[i] += to_float(gradient[i]) * (to_float(before[i]) * factor);
                    }
                }
#pragma omp simd
                for (int64_t i = 0; i < end - begin; ++i) dgamma[begin + i] += of_token[i];
            }
        };
        // Split by columns, so that every sum runs over all tokens in order on one thread.
        parallel_ranges(ctx, d, qkv.size(), [&](int64_t from, int64_t to) {
            for (int64_t begin = from; begin < to; begin += kStrip) {
                const int64_t end = std::min(begin + kStrip, to);
                add_heads(0, shape.heads, begin, end, dgamma_q.as<float>());
                add_heads(shape.heads, normed_heads(shape), begin, end, dgamma_k.as<float>());
            }
        });
    });
}

}  // namespace vocabpipe::kernels::host

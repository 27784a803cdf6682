// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/attention_checks.hpp"
#include "kernels/bf16.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

void attention_sinks_forward(Context& ctx, ConstTensor sinks, const AttentionShape& shape,
                             Tensor out, Tensor log_sum_exp) {
    require_attention_sinks(sinks, shape, out, log_sum_exp);
    const int64_t size = shape.value_size();
    with_type(out.dtype, [&]<typename T>() {
        parallel_ranges(ctx, out.rows, out.size(), [&](int64_t begin, int64_t end) {
            for (int64_t n = begin; n < end; ++n) {
                T* values = out.as<T>() + n * out.stride;
                float* const sums = log_sum_exp.as<float>() + n * log_sum_exp.stride;
                for (int64_t head = 0; head < shape.heads; ++head, values += size) {
                    // Logarithms of the sum without the sink, and of both, relative to the larger.
                    const float sink = to_float(sinks.as<T>()[head]);
                    const float added = std::log1p(std::exp(-std::abs(sink - sums[head])));
                    const float factor = std::exp(std::min(sums[head] - sink, 0.0F) - added);
                    sums[head] = std::max(sink, sums[head]) + added;
#pragma omp simd
                    for (int64_t i = 0; i < size; ++i) {
                        values[i] = from_float<T>(to_float(values[i]) * factor);
                    }
                }
            }
        });
    });
    ctx.poll();
}

void attention_sinks_backward(Context& ctx, ConstTensor sinks, ConstTensor dout, ConstTensor out,
                              ConstTensor log_sum_exp, const AttentionShape& shape,
                              Tensor dscores) {
    require_attention_sinks(sinks, shape, out, log_sum_exp);
    require_sink_gradients(dout, out, dscores, log_sum_exp);
    const int64_t size = shape.value_size();
    with_type(out.dtype, [&]<typename T>() {
        parallel_ranges(ctx, out.rows, out.size(), [&](int64_t begin, int64_t end) {
            for (int64_t n = begin; n < end; ++n) {
                const T* values = out.as<T>() + n * out.stride;
                const T* gradients = dout.as<T>() + n * dout.stride;
                const float* const sums = log_sum_exp.as<float>() + n * log_sum_exp.stride;
                float* const scores = dscores.as<float>() + n * dscores.stride;
                for (int64_t head = 0; head < shape.heads; ++head) {
                    float product = 0;
#pragma omp simd reduction(+ : product)
                    for (int64_t i = 0; i < size; ++i) {
                        product += to_float(gradients[i]) * to_float(values[i]);
                    }
                    scores[head] = -std::exp(to_float(sinks.as<T>()[head]) - sums[head]) * product;
                    values += size;
                    gradients += size;
                }
            }
        });
    });
    ctx.poll();
}

}  // namespace vocabpipe::kernels::host

// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention_checks.hpp"
#include "kernels/bf16.hpp"
#include "kernels/host/dot.hpp"
#include "kernels/host/math.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/softcap.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// One query and one of its heads over the keys [first, end).
template <typename T>
class CachedHead {
public:
    CachedHead(ConstTensor kv, const AttentionShape& shape, int64_t kv_head)
        : size_(shape.head_size),
          value_size_(shape.value_size()),
          stride_(kv.stride),
          k_(kv.as<T>() + kv_head * size_),
          v_(kv.as<T>() + shape.key_columns() + kv_head * value_size_),
          scale_(shape.scale != 0 ? shape.scale : 1.0F / std::sqrt(static_cast<float>(size_))),
          softcap_(shape.softcap) {}

    /// `scores` and `sums` are memory for (end - first) and value_size numbers. sink: -INFINITY for
    /// none.
    void attend(const T* q, int64_t first, int64_t end, float sink, float* scores, float* sums,
                T* out) const {
        const int64_t keys = end - first;
        float largest = -INFINITY;
        for (int64_t j = 0; j < keys; ++j) {
            scores[j] = dot(q, k_ + (first + j) * stride_, size_);
        }
        float scale = scale_;
        if (softcap_ > 0) {
            soft_cap(scores, keys, scale, softcap_);
            scale = 1.0F;
        }
        for (int64_t j = 0; j < keys; ++j) largest = std::max(largest, scores[j]);
#pragma omp simd
        for (int64_t j = 0; j < keys; ++j) scores[j] = fast_exp(scale * (scores[j] - largest));
        std::fill(sums, sums + value_size_, 0.0F);
        float total = std::exp(sink - scale * largest);
        for (int64_t j = 0; j < keys; ++j) {
            const T* v = v_ + (first + j) * stride_;
            const float p = scores[j];
            total += p;
#pragma omp simd
            for (int64_t i = 0; i < value_size_; ++i) sums[i] += p * to_float(v[i]);
        }
        for (int64_t i = 0; i < value_size_; ++i) out[i] = from_float<T>(sums[i] / total);
    }

private:
    int64_t size_, value_size_, stride_;
    const T* k_;
    const T* v_;
    float scale_, softcap_;
};

}  // namespace

void cached_attention_forward(Context& ctx, ConstTensor q, ConstTensor kv, ConstTensor sinks,
                              const AttentionShape& shape, Tensor out) {
    require_cached_attention(q, kv, sinks, shape, out);
    const int64_t queries_per_key = shape.heads / shape.kv_heads;
    const int64_t work = q.rows * shape.heads * shape.seq_length * shape.head_size;
    with_type(q.dtype, [&]<typename T>() {
        parallel_ranges(ctx, q.rows * shape.heads, work, [&](int64_t begin, int64_t stop) {
            std::vector<float> scores(static_cast<size_t>(shape.seq_length));
            std::vector<float> sums(static_cast<size_t>(shape.value_size()));
            for (int64_t at = begin; at < stop; ++at) {
                const int64_t n = at / shape.heads;
                const int64_t head = at % shape.heads;
                const int64_t end = shape.seq_length - q.rows + n + 1;
                const int64_t first =
                    shape.window > 0 ? std::max<int64_t>(end - shape.window, 0) : 0;
                CachedHead<T>(kv, shape, head / queries_per_key)
                    .attend(q.as<T>() + n * q.stride + head * shape.head_size, first, end,
                            sinks ? to_float(sinks.as<T>()[head]) : -INFINITY, scores.data(),
                            sums.data(), out.as<T>() + n * out.stride + head * shape.value_size());
            }
        });
    });
    ctx.poll();
}

}  // namespace vocabpipe::kernels::host

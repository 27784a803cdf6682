// SPDX-License-Identifier: Apache-2.0
// Attention of one head where the CPU has AVX-512: private to attention.cpp.
//
// Scores are computed transposed, a block of keys against 64 queries that lie side by side in
// vectors: maxima, sums and gradients of a softmax then need no sum across a vector. A row of
// scores is never stored whole. Forwards, a block of keys that raises a query's maximum rescales
// the earlier sums; backwards, a block's products with keys and queries are added up at once. Keys
// and values are packed once for all blocks of queries.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

// These require has_avx512(set, type).

/// A query head of one sequence, in elements of `type`.
struct AttentionHead {
    DType type = DType::fp32;
    int64_t queries = 0;     ///< if causal, the last of the tokens
    int64_t length = 0;      ///< tokens, all of them keys
    int64_t size = 0;        ///< of a head of q and k
    int64_t value_size = 0;  ///< of a head of v and out
    const void* q = nullptr;
    const void* k = nullptr;
    const void* v = nullptr;
    int64_t q_stride = 0, kv_stride = 0;
    float scale = 0;
    float cap = 0;
    bool causal = true;  ///< false: no window and no first_visible
    int64_t window = 0;
    const int32_t* first_visible = nullptr;  ///< for all queries; null: 0
};

/// Bytes of memory for either direction; the same on every machine, so that plans for others are
/// right.
[[nodiscard]] int64_t attention_panels_bytes(int64_t length, int64_t head_size, int64_t value_size,
                                             DType type);

struct AttentionOutput {
    void* out = nullptr;
    int64_t stride = 0;
    float* log_sum_exp = nullptr;
    int64_t log_sum_exp_stride = 0;
};
/// `memory`: attention_panels_bytes() bytes, aligned to 64.
void attention_panels_forward(const AttentionHead& head, const AttentionOutput& to,
                              std::byte* memory);

struct AttentionGradients {
    const void* dout = nullptr;
    const void* out = nullptr;
    int64_t dout_stride = 0, out_stride = 0;
    const float* log_sum_exp = nullptr;
    int64_t log_sum_exp_stride = 0;
    void* dq = nullptr;
    void* dk = nullptr;
    void* dv = nullptr;
    int64_t dq_stride = 0, dkv_stride = 0;
    /// Whether this is the first, the last of the query heads that read the same keys: sums of dk
    /// and dv stay in `memory` in between, and the last head stores them.
    bool first = true, last = true;
};
void attention_panels_backward(const AttentionHead& head, const AttentionGradients& gradients,
                               std::byte* memory);

}  // namespace vocabpipe::kernels::host

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention_plan.hpp"

#include <algorithm>

namespace vocabpipe::kernels::cuda {

namespace {

/// Queries of a block see the keys up to its end: at 512, two blocks at sequence length 1024
/// compute three quarters of all scores (the causal half and half of the diagonal blocks).
constexpr int64_t kMostQueryRows = 512;
constexpr int64_t kFewestQueryRows = 16;
/// Keys that a window hides from a block are left out in multiples of this: whole tiles of
/// products.
constexpr int64_t kKeyMultiple = 64;
/// A kernel's second grid dimension counts pairs.
constexpr int64_t kMostPairs = 65535;

constexpr int64_t round_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

AttentionPlan::AttentionPlan(AttentionShape shape)
    : seq_length_(shape.seq_length), window_(shape.window) {
    if (shape.tokens() == 0 || shape.kv_columns() == 0) return;
    const int64_t most_keys =
        window_ > 0 ? std::min(seq_length_, kMostQueryRows + window_ + kKeyMultiple) : seq_length_;
    score_stride = round_up(most_keys, 8);  // whole vectors of scores
    const int64_t row_bytes = score_stride * size_of(DType::fp32);
    const int64_t fitting = kAttentionScratchBytes / 4 / row_bytes / 16 * 16;
    query_rows =
        std::min(shape.seq_length, std::clamp<int64_t>(fitting, kFewestQueryRows, kMostQueryRows));
    int64_t end = 0;
    const auto place = [&](int64_t bytes) {
        const int64_t at = end;
        end += round_up(bytes, 64);
        return at;
    };
    place(query_rows * row_bytes);
    gradients_at = place(query_rows * row_bytes);
    dk_at = place(shape.seq_length * shape.head_size * size_of(DType::fp32));
    dv_at = place(shape.seq_length * shape.head_size * size_of(DType::fp32));
    pair_bytes = end;
    const int64_t most = std::clamp<int64_t>(kAttentionScratchBytes / pair_bytes, 1,
                                             std::min(shape.kv_heads, kMostPairs));
    const int64_t per_sequence = (shape.kv_heads + most - 1) / most;
    group_heads = (shape.kv_heads + per_sequence - 1) / per_sequence;
    groups = shape.sequences * ((shape.kv_heads + group_heads - 1) / group_heads);
}

QueryBlock AttentionPlan::block(int64_t begin) const {
    const int64_t hidden = window_ > 0 ? std::max<int64_t>(begin - window_ + 1, 0) : 0;
    return {.begin = begin,
            .rows = std::min(query_rows, seq_length_ - begin),
            .first_key = hidden / kKeyMultiple * kKeyMultiple};
}

int64_t AttentionPlan::groups_in(int64_t bytes) const {
    if (groups == 0) return 0;
    const int64_t most = std::max<int64_t>(1, kMostPairs / group_heads);
    return std::clamp<int64_t>(bytes / group_bytes(), 1, std::min(groups, most));
}

}  // namespace vocabpipe::kernels::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

/// out[n] = table[ids[n]], or 0 where the shard does not hold that row. N ids; shard (v, h) are
/// rows first_row .. first_row + v - 1 of the table, v may be 0; out (N, h).
void embedding_gather(Context& ctx, std::span<const int32_t> ids, ConstTensor shard,
                      int64_t first_row, Tensor out);

/// dshard[ids[n] - first_row] += dy[n] for the ids of this shard, in the order n = 0 .. N-1.
/// dy (N, h); dshard (v, h) fp32, zeroed first unless `accumulate`.
void embedding_scatter_add(Context& ctx, std::span<const int32_t> ids, ConstTensor dy,
                           int64_t first_row, Tensor dshard, bool accumulate);

/// y[n] = x[n] + wpe[n % seq_length]. x, y (N, h); wpe (>= seq_length, h); y may alias x.
void add_positions(Context& ctx, ConstTensor x, ConstTensor wpe, int64_t seq_length, Tensor y);

/// dwpe[t] = sum of dy[n] over the sequences in order, n % seq_length == t. dy (N, h);
/// dwpe (>= seq_length, h) fp32: added to if `accumulate`, else rows >= seq_length become 0.
void positions_gradient(Context& ctx, ConstTensor dy, int64_t seq_length, Tensor dwpe,
                        bool accumulate);

}  // namespace vocabpipe::kernels::host

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

/// What kernels/host/embedding.hpp says, on device memory.
namespace vocabpipe::kernels::cuda {

void embedding_gather(Context& ctx, std::span<const int32_t> ids, ConstTensor shard,
                      int64_t first_row, Tensor out);

/// Adds in the order n = 0 .. N-1, as the host does; 8 N bytes of the lane's workspace.
void embedding_scatter_add(Context& ctx, std::span<const int32_t> ids, ConstTensor dy,
                           int64_t first_row, Tensor dshard, bool accumulate);

void add_positions(Context& ctx, ConstTensor x, ConstTensor wpe, int64_t seq_length, Tensor y);

void positions_gradient(Context& ctx, ConstTensor dy, int64_t seq_length, Tensor dwpe,
                        bool accumulate);

}  // namespace vocabpipe::kernels::cuda

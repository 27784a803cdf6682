// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

/// Ordered reduction of the partial rows of `count` ranks: out (rows, cols) = blocks[0] + blocks[1]
/// +
/// ... of blocks (count rows, cols), block-major, added in this order in fp32 and rounded once to
/// the type of `out`. blocks and out are fp32 or bf16, each on its own.
void ordered_sum(Context& ctx, ConstTensor blocks, int64_t count, Tensor out);

}  // namespace vocabpipe::kernels::host

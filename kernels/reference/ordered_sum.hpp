// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::reference {

/// out (rows, cols) = blocks[0] + blocks[1] + ... of blocks (count rows, cols), added in this order
/// in fp32 (fp64 for fp64 blocks) and rounded to the type of `out`.
void ordered_sum(Context& ctx, ConstTensor blocks, int64_t count, Tensor out);

}  // namespace vocabpipe::kernels::reference

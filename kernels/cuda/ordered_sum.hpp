// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// As kernels/host/ordered_sum.hpp says, with the same bits.
void ordered_sum(Context& ctx, ConstTensor blocks, int64_t count, Tensor out);

}  // namespace vocabpipe::kernels::cuda

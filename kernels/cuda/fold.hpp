// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// As kernels/host/fold.hpp says, with the same bits.
void fold_rows(Context& ctx, ConstTensor blocks, int64_t count, Tensor out);

}  // namespace vocabpipe::kernels::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

/// c = op(a) op(b) [+ bias] [+ c], with op(a) (m, k), op(b) (k, n), c (m, n), bias (1, n).
/// a and b are both fp32 or both bf16, each with any row stride; the sum runs in fp32. c is fp32 or
/// bf16; `accumulate` (c +=) needs an fp32 c. bias is fp32 or of a's type. Dimensions of 0 and 1
/// are fine: k == 0 gives c = bias or 0. a, b and c must not overlap.
///
/// bf16 is widened where the CPU does not multiply it. A long product is computed in parts with
/// ctx.poll() between them; row_product() computes one with a single row and a transposed b. Bits
/// do not depend on the number of threads, nor on how the rows and columns of c are sharded as long
/// as no shard is a single row. With fp32 operands they do not depend on the CPU's instructions
/// either, but for a single row.
void gemm(Context& ctx, ConstTensor a, bool transpose_a, ConstTensor b, bool transpose_b, Tensor c,
          bool accumulate, ConstTensor bias = {});

}  // namespace vocabpipe::kernels::host

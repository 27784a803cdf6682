// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include "kernels/host/row_product.hpp"
#include "kernels/host/softcap.hpp"
#include "kernels/vocabulary_checks.hpp"

namespace vocabpipe::kernels::host {

void logits_forward(Context& ctx, ConstTensor x, ConstTensor w, float softcap, Tensor z) {
    require_logits(x, w, softcap, z);
    row_product(ctx, x, w, {}, z);
    if (softcap <= 0) return;
    // One at a time: the same instructions, and so bits, wherever a shard begins.
    for (int64_t n = 0; n < z.rows; ++n) {
        float* const row = z.as<float>() + n * z.stride;
        for (int64_t j = 0; j < z.cols; ++j) soft_cap(row + j, 1, 1.0F, softcap);
    }
}

}  // namespace vocabpipe::kernels::host

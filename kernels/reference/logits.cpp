// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include <cmath>

#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

void logits_forward(Context& ctx, ConstTensor x, ConstTensor w, float softcap, Tensor z) {
    const auto cap = static_cast<double>(softcap);
    for (int64_t n = 0; n < x.rows; ++n) {
        for (int64_t j = 0; j < w.rows; ++j) {
            double sum = 0.0;
            for (int64_t i = 0; i < w.cols; ++i) sum += get(x, n, i) * get(w, j, i);
            set(z, n, j, cap > 0 ? cap * std::tanh(sum / cap) : sum);
        }
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference

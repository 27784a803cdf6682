// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

void column_sums(Context& ctx, ConstTensor x, Tensor sums, bool accumulate) {
    for (int64_t col = 0; col < x.cols; ++col) {
        double sum = accumulate ? get(sums, 0, col) : 0.0;
        for (int64_t row = 0; row < x.rows; ++row) sum += get(x, row, col);
        set(sums, 0, col, sum);
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference

// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include "kernels/reference/activation.hpp"
#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

void gated_forward(Context& ctx, Activation activation, ConstTensor gate_up, Tensor y) {
    for (int64_t n = 0; n < y.rows; ++n) {
        for (int64_t i = 0; i < y.cols; ++i) {
            const double gate = activate(activation, get(gate_up, n, i)).value;
            set(y, n, i, gate * get(gate_up, n, y.cols + i));
        }
    }
    ctx.poll();
}

void gated_backward(Context& ctx, Activation activation, ConstTensor dy, ConstTensor gate_up,
                    Tensor dgate_up) {
    for (int64_t n = 0; n < dy.rows; ++n) {
        for (int64_t i = 0; i < dy.cols; ++i) {
            const ValueAndSlope gate = activate(activation, get(gate_up, n, i));
            const double gradient = get(dy, n, i);
            set(dgate_up, n, i, gradient * get(gate_up, n, dy.cols + i) * gate.slope);
            set(dgate_up, n, dy.cols + i, gradient * gate.value);
        }
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference

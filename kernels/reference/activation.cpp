// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/activation.hpp"

#include <cmath>
#include <numbers>

#include "kernels/reference/elements.hpp"
#include "kernels/reference/operators.hpp"

namespace vocabpipe::kernels::reference {

ValueAndSlope activate(Activation activation, double x) {
    switch (activation) {
        case Activation::gelu_tanh: {
            const double slope = std::sqrt(2.0 / std::numbers::pi);
            const double tanh = std::tanh(slope * (x + 0.044715 * x * x * x));
            return {x / 2 * (1.0 + tanh), (1.0 + tanh) / 2 + x / 2 * (1.0 - tanh * tanh) * slope *
                                                                 (1.0 + 3.0 * 0.044715 * x * x)};
        }
        case Activation::silu: {
            const double sigmoid = 1.0 / (1.0 + std::exp(-x));
            return {x * sigmoid, sigmoid * (1.0 + x * (1.0 - sigmoid))};
        }
        case Activation::gelu:
            break;
    }
    const double phi = std::erfc(-x / std::numbers::sqrt2) / 2;
    return {x * phi, phi + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi)};
}

void activation_forward(Context& ctx, Activation activation, ConstTensor x, Tensor y) {
    for (int64_t n = 0; n < x.rows; ++n) {
        for (int64_t i = 0; i < x.cols; ++i) set(y, n, i, activate(activation, get(x, n, i)).value);
    }
    ctx.poll();
}

void activation_backward(Context& ctx, Activation activation, ConstTensor dy, ConstTensor x,
                         Tensor dx) {
    for (int64_t n = 0; n < x.rows; ++n) {
        for (int64_t i = 0; i < x.cols; ++i) {
            set(dx, n, i, get(dy, n, i) * activate(activation, get(x, n, i)).slope);
        }
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference

// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include <cmath>
#include <numbers>

#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

namespace {
const double kSlope = std::sqrt(2.0 / std::numbers::pi);
constexpr double kCubic = 0.044715;
}  // namespace

void gelu_forward(Context& ctx, ConstTensor x, Tensor y) {
    for (int64_t n = 0; n < x.rows; ++n) {
        for (int64_t i = 0; i < x.cols; ++i) {
            const double v = get(x, n, i);
            set(y, n, i, 0.5 * v * (1.0 + std::tanh(kSlope * (v + kCubic * v * v * v))));
        }
    }
    ctx.poll();
}

void gelu_backward(Context& ctx, ConstTensor dy, ConstTensor x, Tensor dx) {
    for (int64_t n = 0; n < x.rows; ++n) {
        for (int64_t i = 0; i < x.cols; ++i) {
            const double v = get(x, n, i);
            const double t = std::tanh(kSlope * (v + kCubic * v * v * v));
            const double du = kSlope * (1.0 + 3.0 * kCubic * v * v);
            set(dx, n, i, get(dy, n, i) * (0.5 * (1.0 + t) + 0.5 * v * (1.0 - t * t) * du));
        }
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference

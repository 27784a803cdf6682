// SPDX-License-Identifier: Apache-2.0
// All activations, and how far fp32 kernels of them may be from the reference.
#pragma once

#include <cmath>

#include "tests/kernels/matrix.hpp"
#include "vocabpipe/activation.hpp"

namespace vocabpipe::kernels::test {

inline constexpr Activation kActivations[] = {Activation::gelu_tanh, Activation::silu,
                                              Activation::gelu};

inline const char* name_of(Activation activation) {
    return activation == Activation::gelu_tanh ? "gelu_tanh"
           : activation == Activation::silu    ? "silu"
                                               : "gelu";
}

/// The error of activation(x), relative to its value, with an exp of 2 ulp and an erfc of 4.
inline double activation_error(Activation activation, double x) {
    const double v = std::abs(x);
    switch (activation) {
        case Activation::gelu_tanh:
            // x sigmoid(2u): the argument errs by 6 eps |2u|, exp by 4 eps and the quotient by 2
            // eps, so the sigmoid by (6 |2u| + 8) eps (1 - sigmoid) + 2 eps.
            return (6 * 1.6 * (v + 0.045 * v * v * v) + 12) * kEps32;
        case Activation::silu:
            return 12 * kEps32;
        case Activation::gelu:
            break;
    }
    // The argument of erfc errs by 2 eps, which are at most 2 x^2 eps of erfc(-x / sqrt(2)), and
    // erfc by 8 eps; or that of the exp by x^2 / 2 eps, exp by 4 eps and what it is multiplied with
    // by 6.
    return (2 * v * v + 14) * kEps32;
}

/// The error of activation'(x). Where that is s + v s (1 - s) u': s errs by (6 |2u| s (1 - s) + 8)
/// eps <= 16 eps; v s (1 - s) 2u' has magnitude below 2 and the relative error of s (1 - s) is that
/// of s plus that of 1 - s. The terms of Phi(x) + x phi(x) are below 1 and 0.25, x^2 phi(x) below
/// 0.3.
inline double activation_slope_error(double x) {
    return 64 * (1 + std::abs(x)) * kEps32;
}

}  // namespace vocabpipe::kernels::test

// SPDX-License-Identifier: Apache-2.0
// Activations and their slopes, for `#pragma omp simd` loops.
#pragma once

#include "kernels/bf16.hpp"
#include "kernels/host/math.hpp"
#include "vocabpipe/activation.hpp"

namespace vocabpipe::kernels::host {

/// u and u' of the activations with the form x sigmoid(u(x)).
template <Activation activation>
struct Gate;

// (1 + tanh(v)) / 2 = sigmoid(2v), without the cancellation of 1 + tanh(v) for negative v.
template <>
struct Gate<Activation::gelu_tanh> {
    static constexpr float kTwiceSlope = 1.5957691216057308F;  // 2 sqrt(2 / pi)
    static constexpr float kCubic = 0.044715F;
    static float argument(float x) { return kTwiceSlope * (x + kCubic * x * x * x); }
    static float argument_slope(float x) { return kTwiceSlope * (1.0F + 3.0F * kCubic * x * x); }
};

template <>
struct Gate<Activation::silu> {
    static float argument(float x) { return x; }
    static float argument_slope(float /*x*/) { return 1.0F; }
};

template <Activation activation>
[[nodiscard]] inline float activate(float x) {
    return x * fast_sigmoid(Gate<activation>::argument(x));
}

struct ValueAndSlope {
    float value, slope;
};

template <Activation activation>
[[nodiscard]] inline ValueAndSlope activate_with_slope(float x) {
    const float s = fast_sigmoid(Gate<activation>::argument(x));
    const float value = x * s;
    return {value, s + value * (1.0F - s) * Gate<activation>::argument_slope(x)};
}

template <>
[[nodiscard]] inline float activate<Activation::gelu>(float x) {
    return x * normal_distribution(x, fast_exp(-0.5F * x * x));
}

template <>
[[nodiscard]] inline ValueAndSlope activate_with_slope<Activation::gelu>(float x) {
    constexpr float kDensity = 0.39894228F;  // 1 / sqrt(2 pi)
    const float bell = fast_exp(-0.5F * x * x);
    const float phi = normal_distribution(x, bell);
    return {x * phi, phi + x * bell * kDensity};
}

/// Calls function.template operator()<activation, T>().
template <typename Function>
void with_activation_and_type(Activation activation, DType type, Function&& function) {
    with_type(type, [&]<typename T>() {
        switch (activation) {
            case Activation::gelu_tanh:
                return function.template operator()<Activation::gelu_tanh, T>();
            case Activation::silu:
                return function.template operator()<Activation::silu, T>();
            case Activation::gelu:
                return function.template operator()<Activation::gelu, T>();
        }
    });
}

}  // namespace vocabpipe::kernels::host

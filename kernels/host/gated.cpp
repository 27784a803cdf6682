// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include "kernels/check.hpp"
#include "kernels/host/activation.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

void gated_forward(Context& ctx, Activation activation, ConstTensor gate_up, Tensor y) {
    require(has_shape(gate_up, y.rows, 2 * y.cols), "gate_up (N, 2 f) and y (N, f)");
    require(gate_up.dtype == y.dtype, "one type for gate_up and y");
    with_activation_and_type(activation, y.dtype, [&]<Activation kActivation, typename T>() {
        parallel_ranges(ctx, y.rows, gate_up.size(), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const T* gate = gate_up.as<T>() + row * gate_up.stride;
                const T* up = gate + y.cols;
                T* out = y.as<T>() + row * y.stride;
#pragma omp simd
                for (int64_t i = 0; i < y.cols; ++i) {
                    out[i] =
                        from_float<T>(activate<kActivation>(to_float(gate[i])) * to_float(up[i]));
                }
            }
        });
    });
}

void gated_backward(Context& ctx, Activation activation, ConstTensor dy, ConstTensor gate_up,
                    Tensor dgate_up) {
    require(has_shape(gate_up, dy.rows, 2 * dy.cols) && same_shape(dgate_up, gate_up),
            "dy (N, f), gate_up and dgate_up (N, 2 f)");
    require(dy.dtype == gate_up.dtype && dy.dtype == dgate_up.dtype,
            "one type for dy, gate_up and dgate_up");
    with_activation_and_type(activation, dy.dtype, [&]<Activation kActivation, typename T>() {
        parallel_ranges(ctx, dy.rows, gate_up.size(), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const T* gradient = dy.as<T>() + row * dy.stride;
                const T* gate = gate_up.as<T>() + row * gate_up.stride;
                const T* up = gate + dy.cols;
                T* dgate = dgate_up.as<T>() + row * dgate_up.stride;
                T* dup = dgate + dy.cols;
#pragma omp simd
                for (int64_t i = 0; i < dy.cols; ++i) {
                    const ValueAndSlope a = activate_with_slope<kActivation>(to_float(gate[i]));
                    const float g = to_float(gradient[i]);
                    const float u = to_float(up[i]);
                    dgate[i] = from_float<T>(g * u * a.slope);
                    dup[i] = from_float<T>(g * a.value);
                }
            }
        });
    });
}

}  // namespace vocabpipe::kernels::host

// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include "kernels/check.hpp"
#include "kernels/cuda/activations.cuh"
#include "kernels/cuda/map.cuh"

namespace vocabpipe::kernels::cuda {

namespace {

template <typename Function>
struct Gated {
    __device__ float operator()(float gate, float up) const {
        return Function::of(gate).value * up;
    }
};

/// One kernel for both gradients: dy and gate are read once. gate_up's and dgate_up's halves lie
/// `half` elements apart.
template <typename Function, int kCount, typename T>
__global__ void __launch_bounds__(kMapThreads)
    gated_backward_kernel(int64_t rows, int64_t half, Rows<const T> dy, Rows<const T> gate_up,
                          Rows<T> dgate_up) {
    for_elements<kCount>(rows, half, [&](int64_t row, int64_t col) {
        const auto gradient = loaded<T, kCount>(dy.data + row * dy.stride + col);
        const T* in = gate_up.data + row * gate_up.stride + col;
        const auto gate = loaded<T, kCount>(in);
        const auto up = loaded<T, kCount>(in + half);
        Vector<kCount> dgate, dup;
        for (int i = 0; i < kCount; ++i) {
            const ValueAndSlope activated = Function::of(gate[i]);
            dgate[i] = gradient[i] * up[i] * activated.slope;
            dup[i] = gradient[i] * activated.value;
        }
        T* out = dgate_up.data + row * dgate_up.stride + col;
        dgate.store(out);
        dup.store(out + half);
    });
}

}  // namespace

void gated_forward(Context& ctx, Activation activation, ConstTensor gate_up, Tensor y) {
    require(has_shape(gate_up, y.rows, 2 * y.cols), "gate_up of shape (N, 2 f), y (N, f)");
    require(gate_up.dtype == y.dtype, "one type for gate_up and y");
    with_element_type(y.dtype, [&]<typename T>() {
        with_activation(activation, [&]<typename Function>() {
            map<T, T, T>(ctx, Gated<Function>{}, y, gate_up.column_range(0, y.cols),
                         gate_up.column_range(y.cols, y.cols));
        });
    });
}

void gated_backward(Context& ctx, Activation activation, ConstTensor dy, ConstTensor gate_up,
                    Tensor dgate_up) {
    require(has_shape(gate_up, dy.rows, 2 * dy.cols) && same_shape(dgate_up, gate_up),
            "dy of shape (N, f), gate_up and dgate_up (N, 2 f)");
    require(dy.dtype == gate_up.dtype && dgate_up.dtype == gate_up.dtype,
            "one type for dy, gate_up and dgate_up");
    if (dy.size() == 0) return;
    with_element_type(dy.dtype, [&]<typename T>() {
        with_activation(activation, [&]<typename Function>() {
            with_vectors<widest<T>()>(
                [&]<int kCount>() {
                    const MapShape shape = map_shape(dy.rows, dy.cols, kCount);
                    launch(ctx, gated_backward_kernel<Function, kCount, T>, shape.grid, shape.block,
                           dy.rows, dy.cols, Rows<const T>{dy.as<T>(), dy.stride},
                           Rows<const T>{gate_up.as<T>(), gate_up.stride},
                           Rows<T>{dgate_up.as<T>(), dgate_up.stride});
                },
                dy, gate_up.column_range(0, dy.cols), dgate_up.column_range(0, dy.cols));
        });
    });
}

}  // namespace vocabpipe::kernels::cuda

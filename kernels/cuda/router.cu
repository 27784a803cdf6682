// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::cuda {

void router_forward(Context&, ConstTensor, ConstTensor, const RouterOptions&, std::span<int32_t>,
                    Tensor, Tensor, Tensor, Tensor) {
    throw UsageError("a mixture of experts cannot run on a GPU yet");
}

void router_backward(Context&, ConstTensor, ConstTensor, std::span<const int32_t>, ConstTensor,
                     ConstTensor, const RouterOptions&, const RouterLossScales&, Tensor) {
    throw UsageError("a mixture of experts cannot run on a GPU yet");
}

}  // namespace vocabpipe::kernels::cuda

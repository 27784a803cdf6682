// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::cuda {

void sort_by_expert(Context&, std::span<const int32_t>, std::span<int32_t>, std::span<int32_t>,
                    std::span<int32_t>) {
    throw UsageError("a mixture of experts cannot sort rows on a GPU yet");
}
void gather_rows(Context&, ConstTensor, std::span<const int32_t>, int64_t, ConstTensor, Tensor) {
    throw UsageError("a mixture of experts cannot gather rows on a GPU yet");
}
void combine_rows(Context&, ConstTensor, std::span<const int32_t>, int64_t, ConstTensor,
                  ConstTensor, Tensor) {
    throw UsageError("a mixture of experts cannot combine rows on a GPU yet");
}
void combine_backward_weights(Context&, ConstTensor, ConstTensor, std::span<const int32_t>,
                              Tensor) {
    throw UsageError("a mixture of experts cannot compute gradients on a GPU yet");
}
void scale_rows(Context&, ConstTensor, std::span<const int32_t>, ConstTensor, Tensor) {
    throw UsageError("a mixture of experts cannot scale rows on a GPU yet");
}

}  // namespace vocabpipe::kernels::cuda

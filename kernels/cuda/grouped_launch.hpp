// SPDX-License-Identifier: Apache-2.0
// Products of all experts of a layer in one launch each, in builds with VOCABPIPE_ENABLE_CUTLASS;
// in others it never applies. Not run on a GPU yet.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/call_site.hpp"
#include "vocabpipe/tensor.hpp"
#include "vocabpipe/tile_map.hpp"

namespace vocabpipe::kernels::cuda {

#ifdef VOCABPIPE_HAS_CUTLASS

// The operators of grouped_linear.cpp, whose arguments have been checked. They return false, with
// nothing done, where a launch does not apply: the GPU is not of compute capability 9.0, operands
// are not bf16, the result is not bf16 (fp32 for dw), or a matrix or its rows do not begin at
// multiples of 16 bytes. The number of an expert's rows decides nothing, so a microbatch that is
// cut takes the same path.

/// `out`: rows of w per expert.
[[nodiscard]] bool try_grouped_forward(CallSite ctx, ConstTensor x, ConstTensor w,
                                       std::span<const RowRange> rows, int64_t out,
                                       int64_t first_column, Tensor y);
[[nodiscard]] bool try_grouped_input(CallSite ctx, ConstTensor dy, ConstTensor w,
                                     std::span<const RowRange> rows, Tensor dx);
[[nodiscard]] bool try_grouped_weight(CallSite ctx, ConstTensor dy, ConstTensor x,
                                      std::span<const RowRange> rows, Tensor dw, bool accumulate);

#else

[[nodiscard]] inline bool try_grouped_forward(CallSite, ConstTensor, ConstTensor,
                                              std::span<const RowRange>, int64_t, int64_t, Tensor) {
    return false;
}
[[nodiscard]] inline bool try_grouped_input(CallSite, ConstTensor, ConstTensor,
                                            std::span<const RowRange>, Tensor) {
    return false;
}
[[nodiscard]] inline bool try_grouped_weight(CallSite, ConstTensor, ConstTensor,
                                             std::span<const RowRange>, Tensor, bool) {
    return false;
}

#endif

}  // namespace vocabpipe::kernels::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::host {

/// Elements of one block of sum_of_squares, counted in row-major order.
inline constexpr int64_t kSquaresBlock = 4096;

/// Sum of the squares of all elements of an fp32 tensor: blocks of kSquaresBlock elements (a fixed
/// tree of double lanes inside), then the blocks in order. The bits depend neither on the number of
/// threads nor on the row stride; parts of a tensor that start and end at multiples of
/// kSquaresBlock elements, or at the end, have the same block sums as the whole. NaN or infinity if
/// any element is.
[[nodiscard]] double sum_of_squares(Context& ctx, ConstTensor values);

}  // namespace vocabpipe::kernels::host

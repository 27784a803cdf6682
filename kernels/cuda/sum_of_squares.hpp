// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// *sum += squares of all elements of an fp32 tensor, in double, in an order that depends on its
/// shape only: not on the row stride. NaN or infinity if any element is.
void sum_of_squares(Context& ctx, ConstTensor values, double* sum);

}  // namespace vocabpipe::kernels::cuda

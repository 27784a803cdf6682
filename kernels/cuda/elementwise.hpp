// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// out = a + b, summed in fp32. Equal shapes, fp32 and bf16 in any combination; out may alias a or
/// b (of the same type). A stride of 0 repeats one row of a or b.
void add(Context& ctx, ConstTensor a, ConstTensor b, Tensor out);

/// to = from, rounded to nearest even where `to` is narrower. Equal shapes, fp32 and bf16 in any
/// combination.
void convert(Context& ctx, ConstTensor from, Tensor to);

/// y = factor * x, in fp32. Equal shapes and types; y may alias x.
void scale(Context& ctx, ConstTensor x, float factor, Tensor y);

}  // namespace vocabpipe::kernels::cuda

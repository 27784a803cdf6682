// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::reference {

/// out = a + b, summed in fp32. Equal shapes, any types; out may alias a or b (of the same type).
void add(Context& ctx, ConstTensor a, ConstTensor b, Tensor out);

/// to = from, rounded to nearest even where `to` is narrower. Equal shapes, any types.
void convert(Context& ctx, ConstTensor from, Tensor to);

/// y = factor * x, in fp32. Equal shapes and types; y may alias x.
void scale(Context& ctx, ConstTensor x, float factor, Tensor y);

}  // namespace vocabpipe::kernels::reference

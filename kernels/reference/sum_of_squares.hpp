// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::reference {

/// Sum of the squares of all elements, one after another in double.
[[nodiscard]] double sum_of_squares(Context& ctx, ConstTensor values);

}  // namespace vocabpipe::kernels::reference

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/operators.hpp"

namespace vocabpipe::kernels::cuda {

/// All operators on a GPU. They enqueue on the stream of the lane that runs
/// (kernels/cuda/engine.hpp) and need a Context with an Engine.
[[nodiscard]] const Operators& operators();

}  // namespace vocabpipe::kernels::cuda

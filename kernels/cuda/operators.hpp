// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/function_of.hpp"

/// The operators on a GPU: cuBLASLt, cuDNN in builds with it, and our own kernels. They enqueue on
/// the stream of the current lane (kernels/cuda/engine.hpp) and need a Context with an Engine.
namespace vocabpipe::kernels::cuda {

#define VOCABPIPE_OPERATOR(name) FunctionOf<&Operators::name> name;
#include "kernels/operator_list.inc"

/// The table of all operators.
[[nodiscard]] const Operators& operators();

}  // namespace vocabpipe::kernels::cuda

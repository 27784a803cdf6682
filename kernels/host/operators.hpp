// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/function_of.hpp"

/// The operators on the host: matrix products and vector loops, on the threads of the Context.
/// Each operator is in the file with its name or its group's.
namespace vocabpipe::kernels::host {

#define VOCABPIPE_OPERATOR(name) FunctionOf<&Operators::name> name;
#include "kernels/operator_list.inc"

/// Elements of one block of sum_of_squares(), counted in row-major order: a fixed tree of double
/// lanes within a block, then the blocks in order. Parts of a tensor that start and end at
/// multiples of it, or at the end, have the same block sums as the whole.
inline constexpr int64_t kSquaresBlock = 4096;

/// The table of all operators.
[[nodiscard]] const Operators& operators();

}  // namespace vocabpipe::kernels::host

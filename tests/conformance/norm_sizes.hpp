// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vocabpipe::kernels::test {

/// Rows, columns, and elements between rows, of the tests of norms.
struct NormSizes {
    int64_t n, h, gap;
};

// The last two are longer than what a block of a GPU keeps in registers.
inline constexpr NormSizes kNormSizes[] = {{1, 1, 3},    {3, 2, 3},   {5, 17, 3},  {17, 129, 3},
                                           {9, 64, 8},   {2, 768, 8}, {70, 40, 0}, {2, 768, 3},
                                           {2, 1100, 3}, {2, 8320, 8}};

/// For bits: workspaces of several sizes, and rows on both sides of what registers hold.
inline constexpr NormSizes kNormSizesOfBits[] = {
    {1, 1, 3}, {17, 129, 3}, {21, 768, 8}, {70, 40, 0}, {3, 1100, 3}, {3, 8192, 8}, {2, 8320, 8}};

}  // namespace vocabpipe::kernels::test

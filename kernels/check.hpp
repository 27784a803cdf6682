// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "vocabpipe/error.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels {

/// Throws UsageError for a caller's mistake; costs one comparison per operator call.
inline void require(bool holds, const char* claim) {
    if (!holds)
        throw UsageError(std::string("kernel called with wrong arguments: expected ") + claim);
}

template <typename View>
[[nodiscard]] bool has_shape(const View& tensor, int64_t rows, int64_t cols) {
    return tensor.rows == rows && tensor.cols == cols;
}
template <typename View, typename Other>
[[nodiscard]] bool same_shape(const View& tensor, const Other& other) {
    return has_shape(tensor, other.rows, other.cols);
}

}  // namespace vocabpipe::kernels

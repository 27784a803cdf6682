// SPDX-License-Identifier: Apache-2.0
// Checks of the arguments of learned positions that all devices share. They throw UsageError.
#pragma once

#include "kernels/check.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>

namespace vocabpipe::kernels {

inline void require_add_positions(ConstTensor x, ConstTensor wpe, int64_t seq_length,
                                  std::span<const int32_t> positions, ConstTensor y) {
    require(same_shape(x, y) && wpe.cols == x.cols, "equal widths of x, wpe and y");
    require(seq_length > 0 && wpe.rows >= seq_length, "seq_length rows of wpe");
    require(positions.empty() || std::ssize(positions) == x.rows, "positions of all rows, or none");
    require(x.dtype == y.dtype, "y of x's type");
}

/// In addition, where the host can read `positions`.
inline void require_rows_of_positions(ConstTensor wpe, std::span<const int32_t> positions) {
    require(std::ranges::all_of(positions, [&](int32_t at) { return at >= 0 && at < wpe.rows; }),
            "positions that are rows of wpe");
}

}  // namespace vocabpipe::kernels

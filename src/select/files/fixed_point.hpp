// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace vocabpipe {

/// Fixed-point 1 of utilities and similarities.
inline constexpr int32_t kFixedPointOne = int32_t{1} << 20;

/// Rounded to nearest and clamped to [0, largest int32]. `value`: a number or an infinity.
[[nodiscard]] inline int32_t to_fixed_point(double value) {
    constexpr double kMost = std::numeric_limits<int32_t>::max();
    const double scaled = value * static_cast<double>(kFixedPointOne);
    if (scaled >= kMost) return std::numeric_limits<int32_t>::max();
    return scaled <= 0 ? 0 : static_cast<int32_t>(std::lround(scaled));
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/verify/parameter_values.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace vocabpipe {

/// How far apart two vectors are.
struct Distance {
    double value = 0;  ///< Euclidean; NaN where a number is none and the other is one
    std::optional<double> bound = {};  ///< of `value`; none: the bits must be the same
    int64_t worst = -1;  ///< logical index of the element that differs most; -1: none differs
    float found = 0, expected = 0;  ///< its values

    /// False for NaN.
    [[nodiscard]] bool within() const { return worst < 0 || (bound && value <= *bound); }
    /// "element (3, 7) is 1.5 instead of 1.25"; with a bound also the distance. `columns`: of the
    /// logical tensor.
    [[nodiscard]] std::string text(int64_t columns) const;
};

/// The distance between elements [first, first + found.size()) of the part of a tensor that `runs`
/// describe, and the same elements of the whole tensor. Without a bound.
[[nodiscard]] Distance distance_between(std::span<const float> found, int64_t first,
                                        std::span<const ElementRun> runs,
                                        std::span<const float> whole);

[[nodiscard]] double euclidean_norm(std::span<const float> values);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace vocabpipe {

/// How pictures show a kind of passes: colors as in the page (html/draw.js), with others for later
/// stages of a rank. Dark ones have white text.
struct PassColor {
    std::string_view letter;  ///< of a pass; empty: passes of the step
    std::string_view word;
    std::string_view fill, later;
    bool dark;
};
inline constexpr std::array<PassColor, 10> kPassColors{
    {{"F", "forward", "#4878d0", "#8eabe2", true},
     {"B", "backward", "#ee854a", "#f4b38f", false},
     {"I", "input gradient", "#f5b05a", "#f9ce99", false},
     {"W", "weight gradient", "#6aa84f", "#a3c992", true},
     {"R", "recompute", "#c4a07a", "#dac4ad", false},
     {"E", "embedding", "#34a0a4", "#81c4c7", true},
     {"G", "embedding gradient", "#7ecbc4", "#afdfda", false},
     {"S", "output layer forward", "#956cc8", "#bda4dd", true},
     {"T", "output layer backward", "#d667a3", "#e6a1c6", true},
     {"", "end of step", "#8c613c", "#b89d86", true}}};

/// Index into kPassColors.
constexpr size_t pass_color(std::string_view letter) {
    const auto* const found =
        std::find_if(kPassColors.begin(), kPassColors.end() - 1,
                     [&](const PassColor& color) { return color.letter == letter; });
    return static_cast<size_t>(found - kPassColors.begin());
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// The parts of `text` between separators, in order, empty ones among them: one more than there are
/// separators. They live as long as `text`.
[[nodiscard]] inline std::vector<std::string_view> split_text(std::string_view text,
                                                              char separator = ',') {
    std::vector<std::string_view> parts;
    for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find(separator, at), text.size());
        parts.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return parts;
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace vocabpipe {

/// std::out_of_range unless elements first, first + 1, ... (`count` of them) are among the first
/// `size`. `what`: the call and its elements, as "FileTokens::read: tokens".
inline void check_range(std::string_view what, int64_t first, size_t count, int64_t size) {
    if (first >= 0 && first <= size && std::cmp_less_equal(count, size - first)) return;
    throw std::out_of_range(std::string(what) + ": " + std::to_string(count) + " from " +
                            std::to_string(first) + " on of " + std::to_string(size));
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace vocabpipe {

/// The line of `text` that begins at `at`, without its end, "\n" or "\r\n"; moves `at` behind it.
/// While `at` is below the size of `text` there is another one. It lives as long as `text`.
[[nodiscard]] inline std::string_view next_line(std::string_view text, size_t& at) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
}

}  // namespace vocabpipe

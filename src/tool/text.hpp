// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace vocabpipe::tool {

/// Line breaks and other control characters become spaces: an error message is one line.
[[nodiscard]] std::string one_line(std::string_view text);

/// In quotes, with control characters and damaged UTF-8 escaped, cut after about `max_bytes`.
[[nodiscard]] std::string quoted(std::string_view text, size_t max_bytes);

}  // namespace vocabpipe::tool

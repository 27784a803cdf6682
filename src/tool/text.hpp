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

/// The arguments of main(), as one line.
[[nodiscard]] std::string command_line(int argc, char** argv);

/// Now, as "2024-08-17 09:30 UTC".
[[nodiscard]] std::string utc_now();

}  // namespace vocabpipe::tool

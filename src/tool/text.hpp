// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace vocabpipe::tool {

/// What may be shown of a text from outside: control characters and line breaks become spaces,
/// bytes that are no UTF-8 "?".
[[nodiscard]] std::string one_line(std::string_view text);

/// one_line() for people who look for what is wrong: words of more than 200 bytes are cut, and of
/// more than 1000 bytes the middle is left out (the remedy stands at the end).
[[nodiscard]] std::string short_line(std::string_view text);

/// In quotes, with control characters and damaged UTF-8 escaped, cut after about `max_bytes`.
[[nodiscard]] std::string quoted(std::string_view text, size_t max_bytes);

/// The arguments of main(), as one line.
[[nodiscard]] std::string command_line(int argc, char** argv);

/// Now, as "2024-08-17 09:30 UTC".
[[nodiscard]] std::string utc_now();

}  // namespace vocabpipe::tool

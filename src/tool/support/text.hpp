// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace vocabpipe::tool {

/// A text from outside, made fit to show: control characters and line breaks become spaces, bytes
/// that are not UTF-8 become "?".
[[nodiscard]] std::string one_line(std::string_view text);

/// one_line() for error messages: words are cut after 200 bytes, and texts over 1000 bytes lose
/// their middle (the remedy stands at the end).
[[nodiscard]] std::string short_line(std::string_view text);

/// Quoted, with control characters and invalid UTF-8 escaped, cut after about `max_bytes`.
[[nodiscard]] std::string quoted(std::string_view text, size_t max_bytes);

/// The arguments of main(), as one line.
[[nodiscard]] std::string command_line(int argc, char** argv);

/// The current time as "2024-08-17 09:30 UTC".
[[nodiscard]] std::string utc_now();

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vocabpipe::tool {

/// "12.35 ms"; or a plain number if times are in a user's unit of `ticks_per_unit` ticks; 0:
/// nanoseconds.
[[nodiscard]] std::string time_text(int64_t value, int ticks_per_unit);
/// "47.13 %"
[[nodiscard]] std::string percent_text(double share);
/// "2.48 GiB"
[[nodiscard]] std::string bytes_text(uint64_t bytes);

/// Parses "12.5ms", "300us", "1s" or "250" (ns, or the user's unit) into ticks. UsageError with
/// `flag`.
[[nodiscard]] int64_t parse_time(std::string_view flag, const std::string& text,
                                 int ticks_per_unit);

}  // namespace vocabpipe::tool

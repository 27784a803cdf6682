// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vocabpipe::tool {

/// "12.35 ms"; or a plain number where times are in a unit of the user's, of which
/// `ticks_per_unit` make one; 0: nanoseconds.
[[nodiscard]] std::string time_text(int64_t value, int ticks_per_unit);
/// "47.13 %"
[[nodiscard]] std::string percent_text(double share);
/// "2.48 GiB"
[[nodiscard]] std::string bytes_text(uint64_t bytes);

/// "12.5ms", "300us", "1s", "250" (ns, or the user's unit), in ticks. Throws UsageError naming
/// `flag`.
[[nodiscard]] int64_t parse_time(std::string_view flag, const std::string& text,
                                 int ticks_per_unit);

}  // namespace vocabpipe::tool

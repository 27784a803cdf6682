// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vocabpipe::tool {

/// "12.35 ms"; a plain number where times are in a unit of the user's.
[[nodiscard]] std::string time_text(int64_t value, bool in_ns);
/// "47.13 %"
[[nodiscard]] std::string percent_text(double share);
/// "2.48 GiB"
[[nodiscard]] std::string bytes_text(uint64_t bytes);

/// "12.5ms", "300us", "1s", "250" (ns, or the user's unit). Throws UsageError naming `flag`.
[[nodiscard]] int64_t parse_time(std::string_view flag, const std::string& text);

}  // namespace vocabpipe::tool

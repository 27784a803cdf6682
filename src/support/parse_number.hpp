// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace vocabpipe {

/// All of `text` as a decimal number; none if it is anything else, infinite or out of T's range.
template <typename T>
[[nodiscard]] std::optional<T> parse_number(std::string_view text) {
    T number{};
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, number);
    if (error != std::errc() || end != last) return std::nullopt;
    if constexpr (std::is_floating_point_v<T>) {
        if (!std::isfinite(number)) return std::nullopt;
    }
    return number;
}

/// The same for a flag's value, where a leading + is allowed and 010 is not, since other parsers
/// read that as octal 8.
template <typename T>
[[nodiscard]] std::optional<T> parse_flag_number(std::string_view text) {
    if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
    const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
    if (std::is_integral_v<T> && digits.size() > 1 && digits.starts_with('0')) return std::nullopt;
    return parse_number<T>(text);
}

}  // namespace vocabpipe

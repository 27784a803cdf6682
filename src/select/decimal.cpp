// SPDX-License-Identifier: Apache-2.0
#include "src/select/decimal.hpp"

#include <algorithm>

namespace vocabpipe {

std::optional<Fraction> fraction_from(std::string_view text) {
    constexpr size_t kMostDecimals = 9;
    const size_t point = std::min(text.find('.'), text.size());
    const std::string_view whole = text.substr(0, point);
    std::string_view decimals = text.substr(std::min(point + 1, text.size()));
    while (decimals.ends_with('0')) decimals.remove_suffix(1);
    const auto digits = [](std::string_view part) {
        return std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    };
    if (!digits(whole) || !digits(decimals) || decimals.size() > kMostDecimals ||
        (whole != "0" && whole != "1" && (!whole.empty() || text.size() < 2))) {
        return std::nullopt;
    }
    Fraction fraction{.numerator = whole == "1" ? 1 : 0, .denominator = 1};
    for (const char digit : decimals) {
        fraction.numerator = fraction.numerator * 10 + (digit - '0');
        fraction.denominator *= 10;
    }
    if (fraction.numerator > fraction.denominator) return std::nullopt;
    return fraction;
}

std::string decimal_text(Fraction fraction) {
    std::string text = std::to_string(fraction.numerator / fraction.denominator);
    int64_t rest = fraction.numerator % fraction.denominator;
    if (rest > 0) text += '.';
    while (rest > 0) {
        rest *= 10;
        text += static_cast<char>('0' + rest / fraction.denominator);
        rest %= fraction.denominator;
    }
    return text;
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/quantity.hpp"

#include "vocabpipe/error.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

namespace vocabpipe::tool {

namespace {

std::string number(double value, const char* unit) {
    const int digits = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : 3;
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.*f %s", digits, value, unit);
    return text.data();
}

}  // namespace

std::string time_text(int64_t value, int ticks_per_unit) {
    if (ticks_per_unit > 0) {
        std::array<char, 64> text{};
        std::snprintf(text.data(), text.size(), "%.2f",
                      static_cast<double>(value) / ticks_per_unit);
        std::string result = text.data();
        while (result.back() == '0') result.pop_back();
        if (result.back() == '.') result.pop_back();
        return result;
    }
    if (value < 1000) return std::to_string(value) + " ns";
    const auto ns = static_cast<double>(value);
    if (value < 1'000'000) return number(ns / 1e3, "us");
    if (value < 1'000'000'000) return number(ns / 1e6, "ms");
    return number(ns / 1e9, "s");
}

std::string percent_text(double share) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.2f %%", 100 * share);
    return text.data();
}

std::string bytes_text(uint64_t bytes) {
    constexpr std::array units{"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) return std::to_string(bytes) + " B";
    double value = static_cast<double>(bytes) / 1024;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < units.size()) value /= 1024, ++unit;
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.*f %s", value >= 100 ? 0 : 2, value, units[unit]);
    return text.data();
}

int64_t parse_time(std::string_view flag, const std::string& text, int ticks_per_unit) {
    using Unit = std::pair<std::string_view, double>;
    std::vector<Unit> units{{"", 1}, {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    if (ticks_per_unit > 0) units = {{"", ticks_per_unit}};
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
    for (const auto& [name, factor] : units) {
        // 2^62 is far beyond any step.
        if (error == std::errc() && unit == name && value >= 0 && value * factor < 0x1p62) {
            return std::llround(value * factor);
        }
    }
    throw UsageError(std::string(flag) + " " + text +
                     (ticks_per_unit > 0
                          ? ": must be a number of at least 0, in the unit of --costs"
                          : ": must be a time of at least 0, such as 250, 300us, 12.5ms or 1s"));
}

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#include "src/tool/flag_values.hpp"

#include "vocabpipe/error.hpp"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace vocabpipe::tool {

namespace {

/// All of `text` is a decimal number of type T. The parser would take 010 for 8.
template <typename T>
bool is_decimal(std::string_view text) {
    if (text.starts_with('+')) text.remove_prefix(1);
    const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
    if (std::is_integral_v<T> && digits.size() > 1 && digits.starts_with('0')) return false;
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return false;
    if constexpr (std::is_floating_point_v<T>) return std::isfinite(value);
    return true;
}

/// What the type of a flag asks for, or "" if the value has it.
std::string_view missing_in(std::string_view value, std::string_view type) {
    if (value.empty()) return "must not be empty";
    if (type.starts_with("INT") && !is_decimal<int64_t>(value)) {
        return "not a number, or out of range; give a decimal integer";
    }
    if (type.starts_with("UINT") && !is_decimal<uint64_t>(value)) {
        return "not a number, or out of range; give a decimal integer that is not negative";
    }
    if (type.starts_with("FLOAT") && !is_decimal<double>(value)) {
        return "not a number, or out of range; give a finite decimal number";
    }
    return "";
}

}  // namespace

void check_flag_values(CLI::App& app) {
    for (CLI::Option* option : app.get_options()) {
        if (option->get_type_size() == 0) continue;  // a switch
        const std::string name = option->get_name();
        const std::string type = option->get_type_name();
        // Before the flag's own checks, which read 010 as the parser does.
        option->transform(CLI::Validator(
            [name, type](std::string& value) {
                const std::string_view missing = missing_in(value, type);
                if (missing.empty()) return std::string();
                throw UsageError(name + " " + (value.empty() ? "\"\"" : value) + ": " +
                                 std::string(missing));
            },
            ""));
    }
    for (CLI::App* command : app.get_subcommands({})) check_flag_values(*command);
}

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#include "src/tool/flag_values.hpp"

#include "src/support/parse_number.hpp"
#include "vocabpipe/error.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace vocabpipe::tool {

namespace {

/// What the type of a flag asks for, or "" if the value has it.
std::string_view missing_in(std::string_view value, std::string_view type) {
    if (value.empty()) return "must not be empty";
    if (type.starts_with("INT") && !parse_flag_number<int64_t>(value)) {
        return "not a number, or out of range; give a decimal integer";
    }
    if (type.starts_with("UINT") && !parse_flag_number<uint64_t>(value)) {
        return "not a number, or out of range; give a decimal integer that is not negative";
    }
    if (type.starts_with("FLOAT") && !parse_flag_number<double>(value)) {
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

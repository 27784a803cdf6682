// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe::tool {

/// "key = value" of a TOML file; numbers and booleans as they are written.
struct TomlAssignment {
    int line = 0;  ///< where it begins, from 1
    std::string key;
    std::vector<std::string> values;  ///< one, unless it is an array
    bool is_array = false;
    bool is_boolean = false;
};

/// What is wrong with a file, and in which line.
struct TomlError : std::runtime_error {
    TomlError(int where, const std::string& what) : std::runtime_error(what), line(where) {}
    int line;
};

/// The assignments of a file in the order of its lines. Tables group flags: what stands below
/// [model] is as without it. Refused are dates, lists in lists, and tables in lists.
[[nodiscard]] std::vector<TomlAssignment> read_toml(std::string_view text);

/// As a file has it: numbers as they are, all else in quotes.
[[nodiscard]] std::string toml_value(const std::string& text);

}  // namespace vocabpipe::tool

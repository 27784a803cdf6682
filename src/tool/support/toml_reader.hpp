// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe::tool {

/// "key = value" of a TOML file; numbers and booleans keep their spelling.
struct TomlAssignment {
    int line = 0;  ///< of its beginning, from 1
    std::string key;
    std::vector<std::string> values;  ///< a single one, unless it is an array
    bool is_array = false;
    bool is_boolean = false;
};

/// An error in a file and its line.
struct TomlError : std::runtime_error {
    TomlError(int where, const std::string& what) : std::runtime_error(what), line(where) {}
    int line;
};

/// The assignments of a file in the order of its lines. Tables only group flags: a key below
/// [model] means the same without it. Dates, lists in lists, and tables in lists are refused.
[[nodiscard]] std::vector<TomlAssignment> read_toml(std::string_view text);

/// The TOML text of a value: numbers as they are, all else in quotes.
[[nodiscard]] std::string toml_value(const std::string& text);

}  // namespace vocabpipe::tool

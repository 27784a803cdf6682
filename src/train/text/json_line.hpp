// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace vocabpipe {

/// Why a line has no document: "is no JSON: ...", without file and line. It ends with a remedy
/// where there is one.
class BadLine : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// True for a line of white space, which is no document and not bad.
[[nodiscard]] bool is_blank_line(std::string_view line);

/// The string under `key` of the object that a line is. Of a key that comes twice, the last counts.
/// BadLine if the line is not a JSON object in UTF-8 with a string under `key`. Memory: that string
/// and the longest other one, however deep the values are nested.
[[nodiscard]] std::string text_of_json_line(std::string_view line, const std::string& key);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
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

/// Of TOML: comments, bare and quoted keys, strings of one line, integers, floats, booleans, arrays
/// of those. Tables, dates and the rest are refused by TomlError.
class TomlReader {
public:
    /// A byte order mark of UTF-8 is skipped.
    explicit TomlReader(std::string_view text) : text_(text) {
        if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
    }
    /// The next assignment; none at the end.
    [[nodiscard]] std::optional<TomlAssignment> next();

private:
    [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
    [[nodiscard]] char peek() const { return at_end() ? '\n' : text_[at_]; }
    [[noreturn]] void fail(const std::string& what) const { throw TomlError(line_, what); }
    void skip_blanks();
    /// Blanks, comments and ends of lines.
    void skip_lines();
    void expect_end_of_line();
    std::string bare();
    std::string quoted();
    std::string key();
    std::string scalar(TomlAssignment& of);

    std::string_view text_;
    size_t at_ = 0;
    int line_ = 1;
};

/// As a file has it: numbers as they are, all else in quotes.
[[nodiscard]] std::string toml_value(const std::string& text);

}  // namespace vocabpipe::tool

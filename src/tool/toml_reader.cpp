// SPDX-License-Identifier: Apache-2.0
#include "src/tool/toml_reader.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace vocabpipe::tool {

namespace {

// After a backslash, and what they mean, in the same order.
constexpr std::string_view kEscapes = "\"\\nt";
constexpr std::string_view kMeant = "\"\\\n\t";

/// Letters of other alphabets, too: names of flags have none, but a message shows them whole.
bool is_bare(char c) {
    return static_cast<unsigned char>(c) >= 0x80 ||
           std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ||
           c == '+';
}

/// A number without TOML's separators, or "" where it is none.
std::string number(const std::string& word) {
    std::string digits = word;
    std::erase(digits, '_');
    const char* begin = digits.data() + (digits.starts_with('+') ? 1 : 0);
    const char* end = digits.data() + digits.size();
    double value = 0;
    const auto [read, error] = std::from_chars(begin, end, value);
    const bool in_range = error == std::errc() || error == std::errc::result_out_of_range;
    return in_range && read == end && begin != end ? std::string(begin, end) : "";
}

}  // namespace

void TomlReader::skip_blanks() {
    while (!at_end() && (peek() == ' ' || peek() == '\t' || peek() == '\r')) ++at_;
}

void TomlReader::skip_lines() {
    for (skip_blanks(); !at_end(); skip_blanks()) {
        if (peek() == '#') {
            at_ = std::min(text_.find('\n', at_), text_.size());
        } else if (peek() == '\n') {
            ++at_;
            ++line_;
        } else {
            return;
        }
    }
}

void TomlReader::expect_end_of_line() {
    skip_blanks();
    if (peek() == '#') at_ = std::min(text_.find('\n', at_), text_.size());
    if (peek() != '\n')
        fail("more than one value on a line; write lists as [a, b] and text in quotes");
}

std::string TomlReader::bare() {
    const size_t begin = at_;
    while (!at_end() && is_bare(peek())) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
}

/// Basic strings have escapes, literal strings ('...') have none.
std::string TomlReader::quoted() {
    const char quote = peek();
    std::string value;
    for (++at_; peek() != quote; ++at_) {
        if (peek() == '\n') fail(std::string("text has no closing ") + quote);
        if (quote == '\'' || peek() != '\\') {
            value += peek();
            continue;
        }
        ++at_;
        const size_t which = kEscapes.find(peek());
        if (at_end() || which == std::string_view::npos) {
            fail(
                "a backslash must precede \", \\, n or t; use '...' for text with other "
                "backslashes");
        }
        value += kMeant[which];
    }
    ++at_;
    return value;
}

std::string TomlReader::key() {
    const bool utf16 = text_.starts_with("\xff\xfe") || text_.starts_with("\xfe\xff");
    if (utf16 && at_ == 0) fail("the file is UTF-16; save it as UTF-8");
    if (peek() == '[') fail("tables are not supported; write every flag as NAME = VALUE");
    std::string name = peek() == '"' || peek() == '\'' ? quoted() : bare();
    if (name.empty()) fail("does not begin with the name of a flag");
    skip_blanks();
    if (peek() != '=') fail(name + " has no = and value; write " + name + " = true for a switch");
    ++at_;
    skip_blanks();
    return name;
}

std::string TomlReader::scalar(TomlAssignment& of) {
    if (peek() == '"' || peek() == '\'') return quoted();
    const std::string word = bare();
    if (word == "true" || word == "false") {
        of.is_boolean = true;
        return word;
    }
    const std::string value = number(word);
    if (value.empty()) {
        fail(of.key + (word.empty() ? " has no value" : " = " + word) +
             ": must be a number, true, false, a [list] or text in quotes");
    }
    return value;
}

std::optional<TomlAssignment> TomlReader::next() {
    skip_lines();
    if (at_end()) return std::nullopt;
    TomlAssignment found;
    found.line = line_;
    found.key = key();
    if (peek() != '[') {
        found.values.push_back(scalar(found));
        expect_end_of_line();
        return found;
    }
    found.is_array = true;
    ++at_;
    for (skip_lines(); peek() != ']' || at_end(); skip_lines()) {
        if (at_end()) fail(found.key + " is a list with no closing ]");
        found.values.push_back(scalar(found));
        skip_lines();
        if (peek() == ',' && !at_end()) {
            ++at_;
        } else if (peek() != ']') {
            fail(found.key + " is a list with a missing comma or closing ]");
        }
    }
    ++at_;
    expect_end_of_line();
    return found;
}

std::string toml_value(const std::string& text) {
    if (number(text) == text && !text.empty()) return text;
    std::string value = "\"";
    for (const char c : text) {
        const size_t which = kMeant.find(c);
        if (which == std::string_view::npos) {
            value += c;
        } else {
            value += '\\';
            value += kEscapes[which];
        }
    }
    return value + "\"";
}

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#include "src/tool/toml_reader.hpp"

#define TOML_HEADER_ONLY 1  // needs no library at run time
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace vocabpipe::tool {

namespace {

/// A number without TOML's separators and sign; "" if it is none.
std::string number(std::string_view word) {
    std::string digits(word);
    std::erase(digits, '_');
    if (digits.starts_with('+')) digits.erase(0, 1);
    const char* const end = digits.data() + digits.size();
    double value = 0;
    const auto [read, error] = std::from_chars(digits.data(), end, value);
    const bool in_range = error == std::errc() || error == std::errc::result_out_of_range;
    return in_range && read == end ? digits : "";
}

/// The word that begins at a place of the text: keeps a number's own digits.
std::string_view word_at(std::string_view text, const toml::source_position& place) {
    size_t begin = 0;
    for (toml::source_index line = 1; line < place.line; ++line) begin = text.find('\n', begin) + 1;
    // Columns count characters.
    for (toml::source_index column = 1; column < place.column; ++column) {
        do ++begin;
        while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0U) == 0x80U);
    }
    return text.substr(begin, text.find_first_of(" \t\r\n,]}#", begin) - begin);
}

class Assignments {
public:
    explicit Assignments(std::string_view text) : text_(text) {}

    void add(const toml::table& table) {
        for (const auto& [key, node] : table) {
            if (const toml::table* const inner = node.as_table()) {
                add(*inner);
                continue;
            }
            TomlAssignment found;
            found.line = line_of(key.source());
            found.key = key.str();
            if (const toml::array* const array = node.as_array()) {
                found.is_array = true;
                for (const toml::node& item : *array) add_value(item, found);
            } else {
                add_value(node, found);
            }
            all_.push_back(std::move(found));
        }
    }

    std::vector<TomlAssignment> in_order() && {
        std::ranges::stable_sort(all_, {}, &TomlAssignment::line);
        return std::move(all_);
    }

    static int line_of(const toml::source_region& region) {
        return static_cast<int>(region.begin.line);
    }

private:
    void add_value(const toml::node& node, TomlAssignment& to) {
        if (const auto* const text = node.as_string()) {
            to.values.push_back(text->get());
        } else if (const auto* const boolean = node.as_boolean()) {
            to.is_boolean = true;
            to.values.emplace_back(boolean->get() ? "true" : "false");
        } else if (node.is_number()) {
            std::string digits = number(word_at(text_, node.source().begin));
            if (digits.empty() && node.is_integer()) {  // hexadecimal and the like
                digits = std::to_string(node.as_integer()->get());
            }
            to.values.push_back(std::move(digits));
        } else {
            throw TomlError(line_of(node.source()), to.key +
                                                        ": must be a number, true, false, a "
                                                        "[list] of those or text in quotes");
        }
    }

    std::string_view text_;
    std::vector<TomlAssignment> all_;
};

}  // namespace

std::vector<TomlAssignment> read_toml(std::string_view text) {
    if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
        throw TomlError(1, "the file is UTF-16; save it as UTF-8");
    }
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    try {
        Assignments all(text);
        all.add(toml::parse(text));
        return std::move(all).in_order();
    } catch (const toml::parse_error& error) {
        throw TomlError(Assignments::line_of(error.source()),
                        std::string(error.description()) +
                            "; write NAME = VALUE, text in quotes and lists as [a, b]");
    }
}

std::string toml_value(const std::string& text) {
    if (!text.empty() && number(text) == text) return text;
    std::string value = "\"";
    for (const char c : text) {
        switch (c) {
            case '"':
            case '\\':
                value += '\\';
                value += c;
                break;
            case '\n':
                value += "\\n";
                break;
            case '\t':
                value += "\\t";
                break;
            default:
                value += c;
        }
    }
    return value + "\"";
}

}  // namespace vocabpipe::tool

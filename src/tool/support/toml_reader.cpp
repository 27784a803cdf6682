// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/toml_reader.hpp"

#include "src/support/text_layout.hpp"

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

/// Walks once through a text, to the words that begin at places given in order.
class Words {
public:
    explicit Words(std::string_view text) : text_(text) {}

    std::string_view at(const toml::source_position& place) {
        for (; line_ < place.line; ++line_, column_ = 1) at_ = text_.find('\n', at_) + 1;
        // Columns count characters.
        for (; column_ < place.column; ++column_) {
            do ++at_;
            while (at_ < text_.size() && (static_cast<unsigned char>(text_[at_]) & 0xC0U) == 0x80U);
        }
        return text_.substr(at_, text_.find_first_of(" \t\r\n,]}#", at_) - at_);
    }

private:
    std::string_view text_;
    size_t at_ = 0;
    toml::source_index line_ = 1, column_ = 1;
};

struct Entry {
    const toml::key* key;
    const toml::node* node;
};

/// Keys and values of a table and of those within it.
void collect(const toml::table& table, std::vector<Entry>& entries) {
    for (const auto& [key, node] : table) {
        if (const toml::table* const inner = node.as_table()) {
            collect(*inner, entries);
        } else {
            entries.push_back({&key, &node});
        }
    }
}

int line_of(const toml::source_region& region) {
    return static_cast<int>(region.begin.line);
}

void add_value(const toml::node& node, Words& words, TomlAssignment& to) {
    if (const auto* const text = node.as_string()) {
        to.values.push_back(text->get());
    } else if (const auto* const boolean = node.as_boolean()) {
        to.is_boolean = true;
        to.values.emplace_back(boolean->get() ? "true" : "false");
    } else if (node.is_number()) {
        std::string digits = number(words.at(node.source().begin));
        if (digits.empty() && node.is_integer()) {  // hexadecimal and the like
            digits = std::to_string(node.as_integer()->get());
        }
        to.values.push_back(std::move(digits));
    } else {
        throw TomlError(line_of(node.source()), to.key +
                                                    ": must be a number, true, false, a [list] of "
                                                    "those or text in quotes");
    }
}

}  // namespace

std::vector<TomlAssignment> read_toml(std::string_view text) {
    if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) {
        throw TomlError(1, "the file is UTF-16; save it as UTF-8");
    }
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    toml::table table;
    try {
        table = toml::parse(text);
    } catch (const toml::parse_error& error) {
        throw TomlError(line_of(error.source()),
                        std::string(error.description()) +
                            "; write NAME = VALUE, text in quotes and lists as [a, b]");
    }
    std::vector<Entry> entries;
    collect(table, entries);
    std::ranges::sort(entries, {}, [](const Entry& one) { return one.key->source().begin; });
    std::vector<TomlAssignment> all;
    Words words(text);
    for (const auto& [key, node] : entries) {
        TomlAssignment& found = all.emplace_back();
        found.line = line_of(key->source());
        found.key = key->str();
        if (const toml::array* const array = node->as_array()) {
            found.is_array = true;
            for (const toml::node& item : *array) add_value(item, words, found);
        } else {
            add_value(*node, words, found);
        }
    }
    return all;
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
                // TOML has no other control characters as they are.
                if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
                    value += format("\\u%04x", static_cast<unsigned>(c));
                } else {
                    value += c;
                }
        }
    }
    return value + "\"";
}

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#include "src/tool/support/help_text.hpp"

#include "src/support/text_layout.hpp"

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::tool {

namespace {

constexpr size_t kMeaning = 30;  // column in which the text of a flag begins

/// Normalises blanks to one; a list that is too long for a line gets some after its commas.
std::string words_of(const std::string& text) {
    constexpr size_t kLongest = kTextWidth - kMeaning;
    std::string words;
    std::istringstream in(text);
    for (std::string word; in >> word;) {
        while (word.size() > kLongest) {
            const size_t comma = word.rfind(',', kLongest - 1);
            if (comma == std::string::npos) break;
            words += (words.empty() ? "" : " ") + word.substr(0, comma + 1);
            word.erase(0, comma + 1);
        }
        words += (words.empty() ? "" : " ") + word;
    }
    return words;
}

/// `left` in the first column, `text` in the second; one below the other if `left` is long.
std::string two_columns(const std::string& left, const std::string& text) {
    if (text.empty()) return "  " + left + "\n";
    std::string line = "  " + left;
    if (left.size() + 4 > kMeaning) line += "\n" + std::string(kMeaning, ' ');
    if (line.size() < kMeaning) line.resize(kMeaning, ' ');
    return line + wrap_text(words_of(text), kMeaning, kMeaning) + "\n";
}

std::string enumerated(const std::vector<std::string>& words, const std::string& between,
                       const std::string& last) {
    std::string text;
    for (size_t i = 0; i < words.size(); ++i) {
        text += (i == 0 ? "" : i + 1 == words.size() ? last : between) + words[i];
    }
    return text;
}

std::string meaning_of(const Flag& flag) {
    const std::string& text = flag.help;
    const bool told = std::ranges::all_of(flag.choices, [&](const std::string& choice) {
        return text.find(choice) != std::string::npos;
    });
    std::vector<std::string> notes;
    if (!told && !flag.free) notes.push_back(enumerated(flag.choices, ", ", " or "));
    if (flag.required && !flag.is_positional()) notes.emplace_back("required");
    const std::string value = flag.default_text();
    if (!value.empty()) notes.push_back("default: " + value);
    if (notes.empty()) return text;
    return text + (text.empty() ? "(" : " (") + enumerated(notes, "; ", "; ") + ")";
}

std::string line_of(const Flag& flag) {
    std::string left = flag.is_positional() ? flag.names : enumerated(flag.spellings(), ", ", ", ");
    if (!flag.is_positional() && !flag.is_switch()) left += " " + flag.placeholder();
    return two_columns(left + (flag.is_list() ? " ..." : ""), meaning_of(flag));
}

/// Lines under headings, in the order of each heading's first line.
class Sections {
public:
    void add(const std::string& title, const std::string& line) {
        const auto same = [&](const auto& section) { return section.first == title; };
        const auto found = std::ranges::find_if(sections_, same);
        (found != sections_.end() ? *found : sections_.emplace_back(title, "")).second += line;
    }
    [[nodiscard]] std::string text() const {
        std::string all;
        for (const auto& [title, lines] : sections_) all += "\n" + title + ":\n" + lines;
        return all;
    }

private:
    std::vector<std::pair<std::string, std::string>> sections_;
};

}  // namespace

std::vector<Flag> standard_flags(const Command& command) {
    std::vector<Flag> flags{{.names = "-h,--help", .help = "Print this help message and exit"}};
    if (!command.version.empty()) {
        flags.push_back({.names = "--version", .help = "Print the version and exit"});
    }
    return flags;
}

std::string help_text(const Command& command, const std::string& path) {
    constexpr const char* kPositionals = "Positionals";
    constexpr const char* kOptions = "Options";
    std::string text;
    std::istringstream in(command.description);
    for (std::string line; std::getline(in, line);) {
        text += (line.size() > kTextWidth ? wrap_text(words_of(line)) : line) + "\n";
    }
    text += "Usage: " + path + " [OPTIONS]";
    Sections sections;
    for (const FlagGroup& group : command.flags) {
        for (const Flag& flag : group.flags) {
            if (!flag.is_positional()) continue;
            text += " " + flag.names + (flag.is_list() ? "..." : "");
            sections.add(kPositionals, line_of(flag));
        }
    }
    for (const Flag& flag : standard_flags(command)) sections.add(kOptions, line_of(flag));
    for (const FlagGroup& group : command.flags) {
        for (const Flag& flag : group.flags) {
            if (flag.is_positional()) continue;
            sections.add(group.title.empty() ? kOptions : group.title, line_of(flag));
        }
    }
    for (const Command& one : command.commands) {
        const std::string summary = one.description.substr(0, one.description.find('\n'));
        sections.add("Subcommands", two_columns(one.name, summary));
    }
    return text + (command.commands.empty() ? "" : " SUBCOMMAND") + "\n" + sections.text();
}

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#include "src/tool/help_format.hpp"

#include "src/support/text_layout.hpp"
#include "src/tool/flag_parser.hpp"

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace vocabpipe::tool {

namespace {

constexpr size_t kMeaning = 30;  // where the text of a flag begins

/// With single blanks between words; a list that is too long for a line has some behind commas.
std::string words_of(const std::string& text) {
    constexpr size_t kLongest = kTextWidth - kMeaning;
    std::string words;
    std::istringstream in(text);
    for (std::string word; in >> word;) {
        while (word.size() > kLongest && word.rfind(',', kLongest - 1) != std::string::npos) {
            const size_t end = word.rfind(',', kLongest - 1) + 1;
            words += (words.empty() ? "" : " ") + word.substr(0, end);
            word.erase(0, end);
        }
        words += (words.empty() ? "" : " ") + word;
    }
    return words;
}

/// `left` in the first column, `text` in the second; below each other where `left` is long.
std::string two_columns(const std::string& left, const std::string& text) {
    if (text.empty()) return "  " + left + "\n";
    std::string line = "  " + left;
    if (left.size() + 4 > kMeaning) line += "\n" + std::string(kMeaning, ' ');
    if (line.size() < kMeaning) line.resize(kMeaning, ' ');
    return line + wrap_text(words_of(text), kMeaning, kMeaning) + "\n";
}

std::string names_of(const CLI::Option& option) {
    std::string names;
    for (const std::string& name : option.get_snames())
        names += (names.empty() ? "-" : ", -") + name;
    for (const std::string& name : option.get_lnames()) {
        names += (names.empty() ? "--" : ", --") + name;
    }
    return names;
}

std::string meaning_of(const CLI::Option& option) {
    std::string text = option.get_description();
    std::string notes;
    const auto note = [&](const std::string& what) { notes += (notes.empty() ? "" : "; ") + what; };
    const std::vector<std::string> choices = choices_of(option);
    const bool told = std::ranges::all_of(
        choices, [&](const std::string& choice) { return text.find(choice) != std::string::npos; });
    if (!told && !takes_others(option)) {
        std::string all;
        for (size_t i = 0; i < choices.size(); ++i) {
            all += (i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ") + choices[i];
        }
        note(all);
    }
    if (option.get_required() && !option.get_positional()) note("must be given");
    if (!option.get_default_str().empty()) note("default: " + option.get_default_str());
    return text + (notes.empty() ? "" : (text.empty() ? "(" : " (") + notes + ")");
}

class HelpFormat final : public CLI::Formatter {
public:
    std::string make_option(const CLI::Option* option, bool is_positional) const override {
        constexpr int kAnyNumber = CLI::detail::expected_max_vector_size;
        const std::string unit = unit_of(*option);
        std::string left = is_positional ? option->get_name(true) : names_of(*option);
        if (!is_positional && !unit.empty()) left += " " + unit;
        if (option->get_expected_max() == kAnyNumber) left += " ...";
        return two_columns(left, meaning_of(*option));
    }
    std::string make_description(const CLI::App* app) const override {
        std::string text;
        std::istringstream in(app->get_description());
        for (std::string line; std::getline(in, line);) {
            text += (line.size() > kTextWidth ? wrap_text(words_of(line)) : line) + "\n";
        }
        return text;
    }
    std::string make_subcommand(const CLI::App* command) const override {
        const std::string text = command->get_description();
        return two_columns(command->get_name(), text.substr(0, text.find('\n')));
    }
    std::string make_help(const CLI::App* app, std::string name,
                          CLI::AppFormatMode mode) const override {
        std::string text = Formatter::make_help(app, std::move(name), mode);
        for (size_t at = text.find("\n\n\n"); at != std::string::npos;
             at = text.find("\n\n\n", at)) {
            text.erase(at, 1);
        }
        while (text.ends_with("\n\n")) text.pop_back();
        return text;
    }
};

}  // namespace

void format_help(CLI::App& app) {
    app.formatter(std::make_shared<HelpFormat>());
    for (CLI::App* command : app.get_subcommands({})) format_help(*command);
}

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#include "src/tool/usage_text.hpp"

#include "src/support/nearest_name.hpp"

#include <cctype>
#include <string_view>
#include <vector>

namespace vocabpipe::tool {

namespace {

/// The deepest subcommand that was given.
const CLI::App& deepest(const CLI::App& app) {
    const CLI::App* at = &app;
    while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
    return *at;
}

std::string command_of(const CLI::App& app) {
    const CLI::App* const parent = app.get_parent();
    return (parent == nullptr ? "" : command_of(*parent) + " ") + app.get_name();
}

/// "--name" of "--name=value"; "" of what is no flag, a negative number for one.
std::string flag_in(const std::string& word) {
    const bool is_flag = word.size() > 1 && word.front() == '-' &&
                         (word[1] == '-' || std::isalpha(static_cast<unsigned char>(word[1])) != 0);
    return is_flag ? word.substr(0, word.find('=')) : "";
}

std::string unknown_flags(const CLI::App& command, const std::vector<std::string>& words) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::vector<std::string_view> known(names.begin(), names.end());
    std::string text;
    for (const std::string& word : words) {
        const std::string flag = flag_in(word);
        if (flag.empty() || flag == "--") continue;
        text += (text.empty() ? "" : "; ") + flag + ": there is no such flag" +
                did_you_mean(flag, known);
    }
    return text;
}

std::string subcommands_of(const CLI::App& command, const std::string& given) {
    std::vector<std::string_view> known;
    std::string all;
    for (const CLI::App* sub : command.get_subcommands({})) {
        known.push_back(sub->get_name());
        all += (all.empty() ? "" : ", ") + sub->get_name();
    }
    return given.empty() ? command_of(command) + ": give a subcommand: " + all
                         : given + ": " + command_of(command) + " has no such subcommand, but " +
                               all + did_you_mean(given, known);
}

/// "--pp: Value 0 not in range 1 to 8" and "--to: x not in {a,b}", as the table of flags says it.
std::string in_our_words(const std::string& text) {
    const size_t colon = text.find(": ");
    const auto told = [&](std::string_view before, std::string_view middle,
                          std::string_view must_be) -> std::string {
        const size_t at = text.find(middle);
        if (colon == std::string::npos || at == std::string::npos || at < colon) return "";
        std::string value = text.substr(colon + 2, at - colon - 2);
        if (value.starts_with(before)) value.erase(0, before.size());
        return text.substr(0, colon) + " " + value + ": must be " + std::string(must_be) +
               text.substr(at + middle.size());
    };
    if (std::string range = told("Value ", " not in range ", "from "); !range.empty()) return range;
    std::string names = told("", " not in {", "one of ");
    if (names.ends_with("}")) {
        names.pop_back();
        return names;
    }
    return text;
}

}  // namespace

std::string what_is_wrong(const CLI::App& app, const CLI::ParseError& error) {
    const CLI::App& command = deepest(app);
    const std::vector<std::string> left = app.remaining(/*recurse=*/true);
    // A missing flag may be one that is misspelt.
    const bool unknown = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                         dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
    std::string what = unknown ? unknown_flags(command, left) : "";
    if (what.empty() && unknown && !command.get_subcommands({}).empty()) {
        what = subcommands_of(command, left.empty() ? "" : left.front());
    }
    if (what.empty() && !left.empty() && dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
        what = left.front() + ": belongs to no flag";
    }
    if (what.empty()) what = in_our_words(error.what());
    // "--lr: 1 required X missing"
    const size_t name = what.find(": ");
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr &&
        what.ends_with("missing") && name != std::string::npos) {
        what = what.substr(0, name) + ": a value is missing";
    }
    return what;
}

std::string usage_text(const CLI::App& app, const CLI::ParseError& error) {
    return what_is_wrong(app, error) + "; see " + command_of(deepest(app)) + " --help";
}

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#include "src/tool/flag_parser.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>

namespace vocabpipe::tool {

namespace {

// The parser keeps one text per option and check; the lists of names are part of it.
constexpr std::string_view kOthers = "...";

std::string list(const std::vector<std::string>& names, bool others) {
    std::string text = "{";
    for (const std::string& name : names) text += (text.size() == 1 ? "" : ",") + name;
    if (others) text += "," + std::string(kOthers);
    return text + "}";
}

std::vector<std::string> listed(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    const size_t begin = type.find('{');
    const size_t end = type.find('}');
    if (begin == std::string::npos || end == std::string::npos) return {};
    std::vector<std::string> names;
    std::istringstream text(type.substr(begin + 1, end - begin - 1));
    for (std::string name; std::getline(text, name, ',');) names.push_back(name);
    return names;
}

void add_flag(CLI::App& app, const Flag& flag, const std::string& title) {
    if (flag.is_switch()) {
        app.add_flag(flag.names, *std::get<bool*>(flag.value), flag.help)
            ->group(title)
            ->default_str(flag.unset)
            ->check(CLI::Validator(
                [name = flag.name()](std::string& value) {
                    if (value == "true" || value == "false") return std::string();
                    throw UsageError(name + " " + value +
                                     ": is a switch; leave the value out, or give true or false");
                },
                ""));
        return;
    }
    CLI::Option* option =
        app.add_option(flag.names, CLI::callback_t([flag](const CLI::results_t& words) {
                           flag.set(words);
                           return true;
                       }),
                       flag.help);
    constexpr int kAnyNumber = CLI::detail::expected_max_vector_size;
    option->type_name(flag.unit)->group(title);
    if (!flag.choices.empty()) {
        option->check(named(flag.choices, flag.free));
    }
    if (flag.repeats) {
        option->expected(1, kAnyNumber)
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
            ->allow_extra_args(false);
    } else if (std::holds_alternative<std::vector<std::string>*>(flag.value)) {
        // Given again, the last time counts, as with flags of one word.
        option->expected(1, kAnyNumber)->allow_extra_args()->trigger_on_parse();
    } else {
        option->expected(flag.words);
    }
    option->default_str(flag.unset.empty() ? flag.text() : flag.unset);
}

}  // namespace

void add_flags(CLI::App& app, const std::vector<FlagGroup>& groups) {
    for (const FlagGroup& group : groups) {
        for (const Flag& flag : group.flags) add_flag(app, flag, group.title);
    }
}

std::vector<std::string> choices_of(const CLI::Option& option) {
    std::vector<std::string> names = listed(option);
    std::erase(names, kOthers);
    return names;
}

bool takes_others(const CLI::Option& option) {
    const std::vector<std::string> names = listed(option);
    return names.empty() || names.back() == kOthers;
}

std::string unit_of(const CLI::Option& option) {
    if (option.get_type_size() == 0) return "";
    const std::string type = option.get_type_name();
    const std::string unit = type.substr(0, type.find(':'));
    if (unit == "INT" || unit == "UINT") return "N";
    return unit == "FLOAT" ? "X" : unit;
}

CLI::Validator named(const std::vector<std::string>& names, bool others) {
    return CLI::Validator(list(names, others));
}

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
// Parses command lines with CLI11, which is set up from the table of flags; error messages are made
// here.
#include "src/tool/support/flag_parser.hpp"

#include "src/support/nearest_name.hpp"
#include "src/tool/support/config_file.hpp"
#include "src/tool/support/help_text.hpp"
#include "vocabpipe/error.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <memory>
#include <string_view>
#include <utility>

namespace vocabpipe::tool {

namespace {

void add_switch(CLI::App& app, const Flag& flag) {
    app.add_flag(flag.names, *std::get<bool*>(flag.value))
        ->check(CLI::Validator(
            [name = flag.name()](std::string& value) {
                if (value == "true" || value == "false") return std::string();
                throw UsageError(name + " " + value +
                                 ": is a switch; omit the value, or use true or false");
            },
            ""));
}

/// Adds --config, which the parser reads before it sets other flags.
void add_config(CLI::App& app, const Flag& flag) {
    app.set_config(flag.names)
        ->check(CLI::Validator(
            [&flag](std::string& path) {
                flag.set({path});
                return std::string();
            },
            ""));
}

void add_flag(CLI::App& app, const Flag& flag) {
    if (flag.is_switch()) return add_switch(app, flag);
    CLI::Option* const option =
        app.add_option(flag.names, CLI::callback_t([&flag](const CLI::results_t& words) {
                           flag.set(words);
                           return true;
                       }));
    option->required(flag.must_be_given());
    if (!flag.is_list()) {
        option->expected(flag.words);
        return;
    }
    option->expected(1, CLI::detail::expected_max_vector_size)
        ->allow_extra_args(std::holds_alternative<std::vector<std::string>*>(flag.value));
    if (flag.repeats || flag.is_positional()) {
        option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    } else {
        option->trigger_on_parse();  // the last occurrence counts, as with flags of one word
    }
}

GivenFlags given_in(const CLI::App& app, const Command& command) {
    GivenFlags given;
    for (const FlagGroup& group : command.flags) {
        for (const Flag& flag : group.flags) {
            const CLI::Option& option = *app.get_option(flag.name());
            if (!option.empty()) given.emplace(flag.name(), option.results());
        }
    }
    return given;
}

/// Passes the assignments of a ConfigFile to the parser.
class ConfigItems final : public CLI::Config {
public:
    ConfigItems(const CLI::App& app, const Command& command) : app_(app), command_(command) {}

    [[nodiscard]] std::vector<CLI::ConfigItem> from_config(std::istream& /*input*/) const override {
        std::vector<CLI::ConfigItem> items;
        for (TomlAssignment& one : command_.config->read(given_in(app_, command_))) {
            items.push_back({.name = std::move(one.key), .inputs = std::move(one.values)});
        }
        return items;
    }
    [[nodiscard]] std::string to_config(const CLI::App* /*app*/, bool /*defaults*/,
                                        bool /*descriptions*/,
                                        std::string /*prefix*/) const override {
        return "";  // never called
    }

private:
    const CLI::App& app_;
    const Command& command_;
};

/// Adds the flags and subcommands of `command`, which must outlive `app`.
void add_to(CLI::App& app, const Command& command) {
    for (const FlagGroup& group : command.flags) {
        for (const Flag& flag : group.flags) {
            if (command.config != nullptr && flag.name() == ConfigFile::kFlag) {
                add_config(app, flag);
            } else {
                add_flag(app, flag);
            }
        }
    }
    for (const FlagGroup& group : command.flags) {
        for (const Flag& flag : group.flags) {
            for (const std::string& other : flag.excludes) {
                app.get_option(flag.name())->excludes(app.get_option(other));
            }
        }
    }
    for (const Command& sub : command.commands) add_to(*app.add_subcommand(sub.name), sub);
    if (!command.commands.empty()) app.require_subcommand(1);
}

/// The deepest subcommand that was given, and the names on the path to it.
struct Place {
    const CLI::App* app;
    const Command* command;
    std::string path;
};
Place place_in(const CLI::App& app, const Command& program) {
    Place at{&app, &program, program.name};
    while (!at.app->get_subcommands().empty()) {
        at.app = at.app->get_subcommands().front();
        at.command = &*std::ranges::find(at.command->commands, at.app->get_name(), &Command::name);
        at.path += " " + at.command->name;
    }
    return at;
}

/// "--name" of "--name=value"; "" if it is no flag, such as a negative number.
std::string flag_in(const std::string& word) {
    const bool is_flag = word.size() > 1 && word.front() == '-' &&
                         (word[1] == '-' || std::isalpha(static_cast<unsigned char>(word[1])) != 0);
    return is_flag ? word.substr(0, word.find('=')) : "";
}

/// Unknown flags among `words`, in their order.
std::string unknown_flags(const CLI::App& command, const Refusal& refusal,
                          const std::vector<std::string>& words) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::vector<std::string_view> known(names.begin(), names.end());
    std::string text;
    for (const std::string& word : words) {
        const std::string flag = flag_in(word);
        if (flag.empty() || flag == "--") continue;
        const std::string refused = refusal ? refusal(flag) : "";
        text += (text.empty() ? "" : "; ") + flag + ": " +
                (refused.empty() ? "unknown flag" + did_you_mean(flag, known) : refused);
    }
    return text;
}

const Flag* flag_named(const std::vector<FlagGroup>& groups, const std::string& name) {
    for (const FlagGroup& group : groups) {
        for (const Flag& flag : group.flags) {
            const std::vector<std::string> names = flag.spellings();
            if (std::ranges::find(names, name) != names.end()) return &flag;
        }
    }
    return nullptr;
}

/// UsageError if a flag that needs a value is followed by another flag: the value was an empty
/// variable of a script, and the parser would take the flag as the value.
void check_values_follow(const Command& program, const std::vector<std::string>& words) {
    const Command* at = &program;
    for (size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
        const auto sub = std::ranges::find(at->commands, words[i], &Command::name);
        if (sub != at->commands.end()) at = &*sub;
        const Flag* const flag = flag_named(at->flags, words[i]);
        if (flag == nullptr || flag->is_switch()) continue;
        for (int value = 1; value <= flag->words && i + 1 < words.size(); ++value) {
            const std::string& next = words[++i];
            if (flag_in(next).empty()) continue;
            std::string remedy = flag->without_value;
            if (remedy.empty() && flag->words == 1) {
                remedy = "write " + flag->name() + "=" + next + " if that is the value";
            }
            throw UsageError(words[i - static_cast<size_t>(value)] +
                             ": expected a value, got the flag " + next +
                             (remedy.empty() ? "" : "; " + remedy));
        }
    }
}

std::string wrong_subcommand(const Place& at, const std::string& given) {
    std::vector<std::string_view> known;
    std::string all;
    for (const Command& sub : at.command->commands) {
        known.push_back(sub.name);
        all += (all.empty() ? "" : ", ") + sub.name;
    }
    return given.empty() ? at.path + ": requires a subcommand: " + all
                         : given + ": unknown subcommand of " + at.path + "; use one of " + all +
                               did_you_mean(given, known);
}

/// The message for words that `app` could not parse.
std::string what_is_wrong(const CLI::App& app, const Place& at, const CLI::ParseError& error) {
    const std::vector<std::string> left = app.remaining(/*recurse=*/true);
    const bool extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    // A missing flag may be a misspelt one.
    if (extras || dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
        std::string unknown = unknown_flags(*at.app, at.command->refusal, left);
        if (!unknown.empty()) return unknown;
        if (!at.command->commands.empty()) {
            return wrong_subcommand(at, left.empty() ? "" : left.front());
        }
        if (extras && !left.empty()) return left.front() + ": unexpected argument";
    }
    const std::string what = error.what();
    // "--lr: 1 required  missing"
    const bool no_value =
        dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && what.ends_with("missing");
    return no_value ? what.substr(0, what.find(": ")) + ": expected a value" : what;
}

void parse(CLI::App& app, std::vector<std::string> words) {
    std::ranges::reverse(words);  // CLI11 expects the reverse order
    app.parse(std::move(words));
}

}  // namespace

CommandLine read_command_line(const Command& program, const std::vector<std::string>& words) {
    CLI::App app("", program.name);
    app.option_defaults()->take_last();  // as in argparse: scripts append overriding flags
    if (!program.version.empty()) app.set_version_flag("--version", program.version);
    add_to(app, program);
    if (program.config != nullptr) {
        app.config_formatter(std::make_shared<ConfigItems>(app, program));
    }
    check_values_follow(program, words);
    std::string answer;
    try {
        parse(app, words);
    } catch (const CLI::CallForHelp&) {
        const Place at = place_in(app, program);
        answer = help_text(*at.command, at.path);
    } catch (const CLI::CallForVersion&) {
        answer = program.version + "\n";
    } catch (const CLI::ParseError& error) {
        const Place at = place_in(app, program);
        throw UsageError(what_is_wrong(app, at, error) + "; see " + at.path + " --help");
    }
    const Place at = place_in(app, program);
    return {at.command, given_in(*at.app, *at.command), answer};
}

void read_flags(const std::vector<FlagGroup>& flags, const std::vector<std::string>& words) {
    const Command alone{.flags = flags};
    CLI::App app;
    app.set_help_flag();
    app.option_defaults()->take_last();
    add_to(app, alone);
    check_values_follow(alone, words);
    try {
        parse(app, words);
    } catch (const CLI::ParseError& error) {
        throw UsageError(what_is_wrong(app, {&app, &alone, ""}, error));
    }
}

}  // namespace vocabpipe::tool

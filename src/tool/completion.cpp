// SPDX-License-Identifier: Apache-2.0
// vocabpipe completion: what shells need to complete train_gpt and vocabpipe, made of their flags.
#include "src/tool/commands.hpp"
#include "src/tool/flag_parser.hpp"
#include "src/tool/train_program.hpp"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace vocabpipe::tool {

namespace {

/// A word of a shell, whatever it holds.
std::string quoted_word(const std::string& text) {
    std::string word = "'";
    for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
    return word + "'";
}

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
}

/// A case of a shell function for every flag and positional argument of `command`, whose full name
/// is `path`, and of its subcommands: "vocabpipe plan:--gpu) candidates=...". What a flag may have
/// is names, files, or both; nothing is known of a number.
void add_cases(const CLI::App& command, const std::string& path, std::string& flags,
               std::string& values) {
    std::vector<std::string> names;
    for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
        names.push_back(sub->get_name());
        add_cases(*sub, path + " " + sub->get_name(), flags, values);
    }
    for (const CLI::Option* option : command.get_options()) {
        std::string patterns;
        for (const std::string& name : option->get_lnames()) {
            names.push_back("--" + name);
            patterns += (patterns.empty() ? "" : "|") + quoted_word(path + ":--" + name);
        }
        // Positional arguments: ":" and no name.
        if (patterns.empty()) patterns = quoted_word(path + ":");
        const std::string unit = unit_of(*option);
        if (unit.empty()) continue;  // a switch
        const bool is_path = unit == "FILE" || unit == "FOLDER" || unit == "PATH" ||
                             unit == "TEXT" || unit == "SCHEDULE" || unit == "COSTS";
        values += "    " + patterns + ") candidates=" + quoted_word(joined(choices_of(*option))) +
                  (is_path && takes_others(*option) ? " files=yes" : "") + " ;;\n";
    }
    flags += "    " + quoted_word(path) + ") candidates=" + quoted_word(joined(names)) + " ;;\n";
}

/// Bash and zsh: finds the subcommand and the flag before the word under the cursor, and sets
/// `candidates` and `files`.
std::string functions(const CLI::App& tool, const CLI::App& train) {
    std::string flags;
    std::string values;
    add_cases(train, "train_gpt", flags, values);
    add_cases(tool, "vocabpipe", flags, values);
    return "_vocabpipe_names() {\n"
           "  case \"$1\" in\n" +
           flags +
           "  esac\n"
           "}\n"
           "_vocabpipe_values() {\n"
           "  candidates=unknown\n"
           "  case \"$1\" in\n" +
           values +
           "  esac\n"
           "}\n"
           "# $1: the program; the rest: the words up to the one under the cursor\n"
           "_vocabpipe_words() {\n"
           "  local at=\"${1##*/}\" last= word more\n"
           "  candidates= files=\n"
           "  shift\n"
           "  for word in \"$@\"; do\n"
           "    case \"$word\" in\n"
           "      =) ;;\n"
           "      --*=*) last= ;;\n"
           "      -*) last=\"$word\" ;;\n"
           "      *)\n"
           "        _vocabpipe_names \"$at\"\n"
           "        more=\" $candidates \"\n"
           "        if [ -z \"$last\" ] && [ \"${more#* \"$word\" }\" != \"$more\" ]; then\n"
           "          at=\"$at $word\"\n"
           "        fi\n"
           "        last= ;;\n"
           "    esac\n"
           "  done\n"
           "  if [ -n \"$last\" ]; then\n"
           "    _vocabpipe_values \"$at:$last\"\n"
           "    [ \"$candidates\" != unknown ] && return\n"
           "  fi\n"
           "  local names\n"
           "  candidates=\n"
           "  _vocabpipe_names \"$at\"\n"
           "  names=\"$candidates\"\n"
           "  _vocabpipe_values \"$at:\"\n"
           "  [ \"$candidates\" = unknown ] && candidates=\n"
           "  candidates=\"$names $candidates\"\n"
           "}\n";
}

constexpr const char* kBash =
    "_vocabpipe() {\n"
    "  local candidates files\n"
    "  local current=\"${COMP_WORDS[COMP_CWORD]}\"\n"
    "  [ \"$current\" = = ] && current=\n"
    "  _vocabpipe_words \"${COMP_WORDS[@]:0:COMP_CWORD}\"\n"
    "  COMPREPLY=($(compgen -W \"$candidates\" -- \"$current\"))\n"
    "  if [ -n \"$files\" ] && [ \"${current#-}\" = \"$current\" ]; then\n"
    "    local IFS=$'\\n'\n"
    "    COMPREPLY+=($(compgen -f -- \"$current\"))\n"
    "    compopt -o filenames 2>/dev/null\n"
    "  fi\n"
    "}\n"
    "complete -F _vocabpipe vocabpipe train_gpt\n";

constexpr const char* kZsh =
    "_vocabpipe() {\n"
    "  local candidates files\n"
    "  _vocabpipe_words \"${(@)words[1,CURRENT-1]}\"\n"
    "  compadd -- ${=candidates}\n"
    "  [ -n \"$files\" ] && _files\n"
    "}\n"
    "compdef _vocabpipe vocabpipe train_gpt\n";

}  // namespace

void add_completion(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "completion",
        "Print what a shell completes commands, flags and values of both programs with\n"
        "  bash: source <(vocabpipe completion bash)\n"
        "  zsh, after compinit: source <(vocabpipe completion zsh)");
    const auto shell = std::make_shared<std::string>();
    command->add_option("SHELL", *shell, "The shell")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh"}));
    command->callback([shell, &app] {
        TrainProgram train;
        const std::string text = functions(app, train.app());
        std::fputs(text.c_str(), stdout);
        std::fputs(*shell == "zsh" ? kZsh : kBash, stdout);
    });
}

}  // namespace vocabpipe::tool

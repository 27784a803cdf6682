// SPDX-License-Identifier: Apache-2.0
// vocabpipe completion: generates the shells' completion of train_gpt and vocabpipe from their
// flags.
#include "src/support/joined.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/help_text.hpp"
#include "src/tool/train/train_program.hpp"

#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace vocabpipe::tool {

namespace {

/// `text` as a word of a shell, quoted.
std::string quoted_word(const std::string& text) {
    std::string word = "'";
    for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
    return word + "'";
}

/// Adds cases of two shell functions for `command`, whose full name is `path`, and its subcommands:
/// the names that may follow it; and the values of its flags and positional arguments, as
/// "vocabpipe plan:--gpu) candidates=...": names, files, or both; nothing for numbers.
void add_cases(const Command& command, const std::string& path, std::string& flags,
               std::string& values) {
    std::vector<std::string> names;
    for (const Command& sub : command.commands) {
        names.push_back(sub.name);
        add_cases(sub, path + " " + sub.name, flags, values);
    }
    std::vector<FlagGroup> groups{{.flags = standard_flags(command)}};
    groups.insert(groups.end(), command.flags.begin(), command.flags.end());
    for (const FlagGroup& group : groups) {
        for (const Flag& flag : group.flags) {
            std::string patterns;
            for (const std::string& name : flag.spellings()) {
                if (!name.starts_with("--")) continue;
                names.push_back(name);
                patterns += (patterns.empty() ? "" : "|") + quoted_word(path + ":" + name);
            }
            if (flag.is_switch()) continue;
            // Positional arguments have ":" and no name.
            if (patterns.empty()) patterns = quoted_word(path + ":");
            static const std::set<std::string> paths{"FILE", "FOLDER",   "PATH",
                                                     "TEXT", "SCHEDULE", "COSTS"};
            const bool files =
                (flag.choices.empty() || flag.free) && paths.contains(flag.placeholder());
            values += "    " + patterns + ") candidates=" + quoted_word(joined(flag.choices, " ")) +
                      (files ? " files=yes" : "") + " ;;\n";
        }
    }
    flags +=
        "    " + quoted_word(path) + ") candidates=" + quoted_word(joined(names, " ")) + " ;;\n";
}

/// For bash and zsh: finds the subcommand and the flag before the word under the cursor, and sets
/// `candidates` and `files`.
std::string functions() {
    std::string flags;
    std::string values;
    TrainProgram train;
    for (const Command& program : {train.command(), vocabpipe_command("")}) {
        add_cases(program, program.name, flags, values);
    }
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

Command completion_command() {
    const auto shell = std::make_shared<std::string>();
    return {.name = "completion",
            .description =
                "Print a shell completion script for vocabpipe and train_gpt\n"
                "  bash: source <(vocabpipe completion bash)\n"
                "  zsh, after compinit: source <(vocabpipe completion zsh)",
            .flags = {{.flags = {{.names = "SHELL",
                                  .value = shell.get(),
                                  .help = "Shell",
                                  .choices = {"bash", "zsh"}}}}},
            .run = [shell](const GivenFlags&) {
                std::printf("%s%s", functions().c_str(), *shell == "zsh" ? kZsh : kBash);
            }};
}

}  // namespace vocabpipe::tool

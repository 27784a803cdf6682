// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/command.hpp"

#include <string>
#include <vector>

namespace vocabpipe::tool {

/// What a command line asks for.
struct CommandLine {
    const Command* command;  ///< the one that was given, of those of the program
    GivenFlags given;
    std::string answer;  ///< to --help or --version, in place of a run; else empty
};

/// Reads the words after the program's name. Values go where the rows keep them; what a config file
/// says goes to flags that the words do not have. Throws UsageError: a wrong value; what is
/// unknown, with the known name that is nearest; what is missing, with the place of help.
[[nodiscard]] CommandLine read_command_line(const Command& program,
                                            const std::vector<std::string>& words);

/// The same of a text of its own, which has flags alone.
void read_flags(const std::vector<FlagGroup>& flags, const std::vector<std::string>& words);

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/support/command.hpp"

#include <string>
#include <vector>

namespace vocabpipe::tool {

/// A parsed command line.
struct CommandLine {
    const Command* command;  ///< the given command, of those of the program
    GivenFlags given;
    std::string answer;  ///< text for --help or --version, instead of a run; else empty
};

/// Parses the words after the program's name. Values go where the rows keep them; flags that the
/// words lack take their values from the config file. UsageError for wrong values, for unknown
/// names (with the nearest known one), and for missing ones (with a hint at --help).
[[nodiscard]] CommandLine read_command_line(const Command& program,
                                            const std::vector<std::string>& words);

/// The same for a text that has only flags.
void read_flags(const std::vector<FlagGroup>& flags, const std::vector<std::string>& words);

}  // namespace vocabpipe::tool

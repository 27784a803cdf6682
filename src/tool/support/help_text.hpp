// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/support/command.hpp"

#include <string>
#include <vector>

namespace vocabpipe::tool {

/// --help, and --version if the command has one; every command has these flags.
[[nodiscard]] std::vector<Flag> standard_flags(const Command& command);

/// The text of --help, in lines of at most 80 columns: per flag its names, placeholder, meaning,
/// choices, and default. `path`: the command with its parents, "vocabpipe data prepare".
[[nodiscard]] std::string help_text(const Command& command, const std::string& path);

}  // namespace vocabpipe::tool

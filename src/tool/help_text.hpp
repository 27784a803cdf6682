// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/command.hpp"

#include <string>
#include <vector>

namespace vocabpipe::tool {

/// --help, and --version where there is one: they have no value, and every command has them.
[[nodiscard]] std::vector<Flag> standard_flags(const Command& command);

/// What --help prints, in lines of at most 80 columns: per flag its names, what stands for the
/// value, what it means, the names that it may have, and what holds without it. `path`: the command
/// with those that it belongs to, "vocabpipe data prepare".
[[nodiscard]] std::string help_text(const Command& command, const std::string& path);

}  // namespace vocabpipe::tool

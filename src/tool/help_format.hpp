// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace vocabpipe::tool {

/// Lets `app` and its subcommands print help texts of at most 80 columns: per flag its names, what
/// stands for the value, what it means, the names that it may have, and what holds without it.
void format_help(CLI::App& app);

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace vocabpipe::tool {

/// What is wrong with a command line that `app` could not parse: unknown flags and subcommands in
/// the order in which they were given, with the known name that is nearest.
[[nodiscard]] std::string what_is_wrong(const CLI::App& app, const CLI::ParseError& error);

/// The same, and where help is.
[[nodiscard]] std::string usage_text(const CLI::App& app, const CLI::ParseError& error);

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace vocabpipe::tool {

/// Lets every flag of `app` and its subcommands refuse, as a UsageError, an empty value and what is
/// no number where its type is one: decimal, finite, within 64 bits. By itself the parser takes -1
/// for a large unsigned number, 010 for 8, and cuts off what is too large. Call it when all flags
/// are there, before they are parsed.
void check_flag_values(CLI::App& app);

}  // namespace vocabpipe::tool

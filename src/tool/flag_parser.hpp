// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/flag.hpp"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// Lets `app` read the flags of a table, under their headings. A value that is none of the flag's
/// throws UsageError out of the parser. The rows' values must outlive `app`.
void add_flags(CLI::App& app, const std::vector<FlagGroup>& groups);

/// The names that a value may have, of a flag with such a list; empty: anything.
[[nodiscard]] std::vector<std::string> choices_of(const CLI::Option& option);
/// Whether the names are only some of the possible values: files are others.
[[nodiscard]] bool takes_others(const CLI::Option& option);
/// What stands for the value in help texts: "FILE"; empty for a switch.
[[nodiscard]] std::string unit_of(const CLI::Option& option);

/// Names for help and completion of a value that is checked elsewhere; `others`: there are more.
[[nodiscard]] CLI::Validator named(const std::vector<std::string>& names, bool others = false);

}  // namespace vocabpipe::tool

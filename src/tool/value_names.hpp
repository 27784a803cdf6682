// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace vocabpipe::tool {

/// Tells help and completion which names the values of flags may have, of `app` and its
/// subcommands, where the commands check them themselves. Call it when all flags are there.
void name_values(CLI::App& app);

}  // namespace vocabpipe::tool

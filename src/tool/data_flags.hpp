// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/data/data_options.hpp"

#include <CLI/CLI.hpp>

namespace vocabpipe::tool {

/// The flags that say which tokens a run reads and what their documents mean; Megatron's names.
void add_data_flags(CLI::App& app, DataOptions& options);

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/train_options.hpp"

#include <CLI/CLI.hpp>

namespace vocabpipe::tool {

/// Learning rate, weight decay and AdamW, as Megatron names them. Values that are no names of
/// theirs throw UsageError out of the parser.
void add_optimizer_flags(CLI::App& app, TrainOptions& options);

}  // namespace vocabpipe::tool

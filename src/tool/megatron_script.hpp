// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/command.hpp"
#include "src/train/options/train_flags.hpp"
#include "src/train/options/train_options.hpp"

#include <string>
#include <vector>

namespace vocabpipe::tool {

/// Throws UsageError for a flag that is read without effect, where it asks for what the model does
/// not have.
void check_accepted(const GivenFlags& given, const ModelConfig& model);

/// --no-load-optim where an optimizer would be loaded. `loads_step`: --load names a saved step. A
/// UsageError.
void check_optimizer_load(const MegatronFlags& megatron, const TrainOptions& options,
                          bool loads_step);

/// Sets schedule and memory limit as the flags of Megatron's zero-bubble fork say. Throws
/// UsageError where --schedule or --memory-limit say it besides.
void use_zero_bubble(const MegatronFlags& megatron, const GivenFlags& given, TrainOptions& options);

/// What holds here and in Megatron for flags that are not given, where it differs; "" where the
/// command line has no flag that only scripts for Megatron have. `groups`: all flags, read and
/// resolved.
[[nodiscard]] std::string other_defaults(const std::vector<FlagGroup>& groups,
                                         const GivenFlags& given, const ModelConfig& model);

}  // namespace vocabpipe::tool

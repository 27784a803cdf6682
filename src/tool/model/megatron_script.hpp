// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/support/command.hpp"
#include "src/train/options/train_flags.hpp"
#include "src/train/options/train_options.hpp"

#include <string>
#include <vector>

namespace vocabpipe::tool {

/// UsageError for an accepted flag without effect that asks for something the model does not have.
void check_accepted(const GivenFlags& given, const ModelConfig& model);

/// UsageError for --no-load-optim if an optimizer would be loaded. `loads_step`: --load names a
/// saved step.
void check_optimizer_load(const MegatronFlags& megatron, const TrainOptions& options,
                          bool loads_step);

/// Sets schedule and memory limit by the flags of Megatron's zero-bubble fork. UsageError if
/// --schedule or --memory-limit is given, too.
void use_zero_bubble(const MegatronFlags& megatron, const GivenFlags& given, TrainOptions& options);

/// Sets the ZeRO stage by the flag of Megatron's FSDP. UsageError if --zero-stage names another.
void use_sharding_strategy(const MegatronFlags& megatron, const GivenFlags& given,
                           TrainOptions& options);

/// Lists the flags that are not given and whose defaults differ from Megatron's, with both; "" if
/// the command line has no flag that exists only for Megatron's scripts. `groups`: all flags, read
/// and resolved.
[[nodiscard]] std::string other_defaults(const std::vector<FlagGroup>& groups,
                                         const GivenFlags& given, const ModelConfig& model);

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/parameters.hpp"
#include "vocabpipe/parameter_group.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Parses "PATTERN:weight_decay=X,lr_mult=Y" with at least one of both, or "PATTERN:freeze". Throws
/// UsageError.
[[nodiscard]] ParameterGroup parse_parameter_group(const std::string& text);

/// Optimizer settings of one tensor.
struct ParameterSettings {
    float weight_decay = 0;
    float lr_multiplier = 1;
};

/// Settings of the tensor `name`: those of the first group whose pattern matches. Without one,
/// `weight_decay` if it `decays` (matrices do, biases and norms do not), and multiplier 1.
[[nodiscard]] ParameterSettings parameter_settings(const std::vector<ParameterGroup>& groups,
                                                   std::string_view name, bool decays,
                                                   float weight_decay);

/// ModelPartition::frozen: the tensors whose first group freezes them, and all but adapters where
/// there are any; empty where nothing is frozen. Correction biases have no group.
[[nodiscard]] std::vector<bool> frozen_parameters(const std::vector<ParameterGroup>& groups,
                                                  const std::vector<LogicalParameter>& tensors);

/// UsageError for a group without tensors: its pattern matches none, or earlier groups have them
/// all. Where there are adapters, only they count.
void check_parameter_groups(const std::vector<ParameterGroup>& groups,
                            const std::vector<LogicalParameter>& tensors);

/// One line per group and one for the rest: numbers of tensors and elements, then weight decay and
/// factor of the learning rate, or that they are frozen. Empty without groups.
[[nodiscard]] std::string describe_parameter_groups(const std::vector<ParameterGroup>& groups,
                                                    const std::vector<LogicalParameter>& tensors,
                                                    float weight_decay);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/parameter_source.hpp"

#include <vector>

namespace vocabpipe {

/// Throws UsageError where a model of these parameters cannot have these frozen
/// (ModelPartition::frozen): see step_sizes().
void check_frozen(const std::vector<LogicalParameter>& parameters, const std::vector<bool>& frozen);

}  // namespace vocabpipe

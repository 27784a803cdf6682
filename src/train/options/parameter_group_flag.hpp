// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/flag.hpp"
#include "vocabpipe/parameter_group.hpp"

#include <vector>

namespace vocabpipe {

/// --param-group, for every program that trains or plans a model.
[[nodiscard]] Flag parameter_group_flag(std::vector<ParameterGroup>& groups);

}  // namespace vocabpipe

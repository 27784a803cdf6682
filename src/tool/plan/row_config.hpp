// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/output_check.hpp"
#include "vocabpipe/plan.hpp"

#include <cstddef>
#include <string>

namespace vocabpipe::tool {

/// A config file of train_gpt (--config) that trains row `row` of a plan: the flags of
/// train_flags_of(), below comments that say what was predicted.
[[nodiscard]] std::string row_config(const Plan& plan, size_t row);

/// What --write-config writes, recognised by its first line.
[[nodiscard]] OutputKind row_config_output();

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/flag.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <vector>

namespace vocabpipe {

/// Largest cost of a pass, in any unit: a sixteenth of what make_schedule() allows.
inline constexpr double kMostCost = 0x1p36;

/// The flags of RuleOptions, for every program that orders passes.
[[nodiscard]] std::vector<Flag> rule_flags(RuleOptions& rule);

}  // namespace vocabpipe

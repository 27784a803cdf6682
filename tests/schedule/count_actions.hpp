// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/program.hpp"

#include <cstdint>
#include <map>
#include <vector>

namespace vocabpipe::testing {

using ActionCounts = std::map<Do, int64_t>;

/// How many actions of each kind all programs have together.
[[nodiscard]] inline ActionCounts count_actions(const std::vector<Program>& programs) {
    ActionCounts counts;
    for (const Program& program : programs) {
        for (const Action& action : program.actions) ++counts[action.what];
    }
    return counts;
}

}  // namespace vocabpipe::testing

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedules/v_pattern.hpp"

#include <algorithm>

namespace vocabpipe::v_pattern {

/// The search minimises this: a step that starts and ends on all ranks at once lasts the makespan,
/// and one whose ranks may run ahead the largest span; both count equally.
[[nodiscard]] inline int64_t score(const Clock& clock) {
    return clock.makespan() + clock.largest_span();
}

struct RefineOptions {
    int limit = 0;       ///< most activations alive on any rank
    int64_t budget = 0;  ///< passes that all trials together may time, about 10 ns each
};

/// A budget for lists of `passes` passes in total: `most`, or less for lists so short that a
/// hundred moves per pass suffice.
[[nodiscard]] constexpr int64_t refinement_budget(int64_t passes, int64_t most) {
    constexpr int64_t kMovesPerPass = 100;
    return std::min(most / passes, kMovesPerPass * passes) * passes;
}

/// Moves single passes within their rank and keeps moves that do not raise the score: patterns are
/// made for F = I = W, and for other costs moving a few passes gains much. Deterministic: the moves
/// are pseudo-random with a fixed seed, and their number depends only on the size. Returns the
/// score.
int64_t refine(Rows& rows, const Costs& costs, const RefineOptions& options);

}  // namespace vocabpipe::v_pattern

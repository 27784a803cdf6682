// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedules/v_pattern.hpp"

#include <algorithm>

namespace vocabpipe::v_pattern {

/// What the search minimises: a step that starts and ends everywhere at once lasts the makespan,
/// one whose ranks may run ahead the largest span; both count the same.
[[nodiscard]] inline int64_t score(const Clock& clock) {
    return clock.makespan() + clock.largest_span();
}

struct RefineOptions {
    int limit = 0;       ///< activations alive on any rank
    int64_t budget = 0;  ///< passes that all trials together may time, about 10 ns each
};

/// A budget for lists of that many passes in all: `most`, less where the lists are so short that a
/// hundred moves per pass find what there is.
[[nodiscard]] constexpr int64_t refinement_budget(int64_t passes, int64_t most) {
    constexpr int64_t kMovesPerPass = 100;
    return std::min(most / passes, kMovesPerPass * passes) * passes;
}

/// Moves single passes within their rank and keeps what is not worse: patterns are made for
/// F = I = W, and for other costs a few passes elsewhere are worth a lot. Deterministic: the moves
/// are pseudo-random with a fixed seed, and their number depends on the size alone. Returns the
/// score.
int64_t refine(Rows& rows, const Costs& costs, const RefineOptions& options);

}  // namespace vocabpipe::v_pattern

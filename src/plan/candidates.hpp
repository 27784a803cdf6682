// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/plan.hpp"

#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

struct Candidates {
    std::vector<Candidate> possible;
    std::vector<std::pair<Candidate, std::string>> skipped;  ///< and why
};

/// Schedule x vocabulary mode x chunks x layer split, in this order. A family asked for another
/// number of chunks than it has, or a split into more stages than layers although fewer chunks are
/// possible, is skipped. Throws UsageError for unknown schedules.
[[nodiscard]] Candidates list_candidates(const PlanOptions& options);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/plan.hpp"

#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

/// Whether the candidate has pairs, and ranks that exchange what the passes of a pair may hide
/// behind each other (PlannedTrainer::exchange_percent).
[[nodiscard]] bool hides_exchanges(const Candidate& candidate);

struct Candidates {
    std::vector<Candidate> possible;
    std::vector<std::pair<Candidate, std::string>> skipped;  ///< with the reason
};

/// Mesh x microbatch size x recomputation x schedule x vocabulary mode x chunks x layer split, in
/// this order. Skips families that do not have the requested number of chunks, splits into more
/// stages than layers although fewer chunks are possible, and what list_steps() skips. Throws
/// UsageError for unknown schedules, and for pairs that no candidate has.
[[nodiscard]] Candidates list_candidates(const PlanOptions& options);

}  // namespace vocabpipe

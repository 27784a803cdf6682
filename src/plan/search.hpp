// SPDX-License-Identifier: Apache-2.0
// Evaluating candidates: all of them, or only those that may be among the best.
#pragma once

#include "vocabpipe/plan.hpp"

#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

/// Rows of candidates, best first.
struct Evaluated {
    std::vector<PlanRow> rows;
    std::vector<std::pair<Candidate, std::string>> skipped;  ///< what no family orders, and why
    PlanSearch counts;
};

/// Evaluates every candidate by simulation or by pass times.
[[nodiscard]] Evaluated evaluate_all(const PlanOptions& options,
                                     const std::vector<Candidate>& candidates,
                                     Evaluation evaluation);

/// Evaluates candidates by pass times in the order of their lower bounds, until no other one can be
/// among the best PlanOptions::best of all, and simulates those: the first rows of the result. They
/// are the best of evaluate_all() by pass times, in the order of the simulation; the other rows
/// were timed on the way. Candidates that fit come before those that do not, of which the search
/// times as many as needed to fill the places.
[[nodiscard]] Evaluated search_best(const PlanOptions& options,
                                    const std::vector<Candidate>& candidates);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
// Parts of plan_text(). All of them need a plan with rows.
#pragma once

#include "vocabpipe/plan.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace vocabpipe {

/// "79.65": bytes in GiB.
[[nodiscard]] std::string gib_text(int64_t bytes);

/// Whether this holds for the candidate of any row.
template <typename Holds>
[[nodiscard]] bool any_candidate(const Plan& plan, Holds&& holds) {
    return std::any_of(plan.rows.begin(), plan.rows.end(),
                       [&](const PlanRow& row) { return holds(row.candidate); });
}

/// Whether rows differ in this.
template <typename T>
[[nodiscard]] bool varies(const Plan& plan, T Candidate::*what) {
    const T& first = plan.rows.front().candidate.*what;
    return any_candidate(plan, [&](const Candidate& c) { return c.*what != first; });
}

/// Whether ranks of some candidate share a stage or replicate it.
[[nodiscard]] inline bool has_slices(const Candidate& candidate) {
    return candidate.mesh.slices() > 1;
}

/// The first `rows` rows that fit, or the nearest if none does: times and what is spare, then
/// memory by purpose; with lines that say what is not shown.
[[nodiscard]] std::string rows_text(const Plan& plan, size_t rows);

/// What is missing, and what Plan::remedies would change. Empty if a row fits.
[[nodiscard]] std::string nothing_fits_text(const Plan& plan);

/// What vocabulary parallelism changes against the best row without it. Empty if there is nothing
/// to compare.
[[nodiscard]] std::string vocabulary_text(const Plan& plan);

/// The command of a row, on several lines that a shell reads as one.
[[nodiscard]] std::string command_text(const Plan& plan, size_t row);

}  // namespace vocabpipe

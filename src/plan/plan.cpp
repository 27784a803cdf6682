// SPDX-License-Identifier: Apache-2.0
// make_plan() lists candidates and evaluates them, or searches for the best. Then it shows for the
// best rows how much they depend on assumptions (sensitivity.hpp), and other lengths of sequences.
#include "vocabpipe/plan.hpp"

#include "src/plan/candidates.hpp"
#include "src/plan/check_options.hpp"
#include "src/plan/evaluate.hpp"
#include "src/plan/parallel.hpp"
#include "src/plan/plan_lengths.hpp"
#include "src/plan/plan_progress.hpp"
#include "src/plan/search.hpp"
#include "src/plan/sensitivity.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace vocabpipe {

namespace {

/// Lowering and simulating takes about 5 us per pass, several times where receives are tried early
/// (docs/planning.md), so this many are some 15 s of one core.
constexpr int64_t kPassesToSimulate = 1'000'000;

void add_lengths(Plan& plan) {
    if (plan.options.documents.empty()) return;
    plan.lengths.resize(std::min(plan.rows.size(), kLengthRows));
    PlanProgress progress(plan.options, "planning lengths", plan.lengths.size());
    for_all(plan.lengths.size(), plan.options.threads, {}, [&](size_t row) {
        plan.lengths[row] = plan_lengths(plan.options, plan.rows[row]);
        progress.step();
    });
}

}  // namespace

Plan make_plan(const PlanOptions& options) {
    check_options(options);
    Plan plan{.options = options};
    Candidates candidates = list_candidates(options);
    plan.skipped = std::move(candidates.skipped);
    const std::vector<Candidate>& possible = candidates.possible;

    plan.evaluation = options.evaluation;
    if (plan.evaluation == Evaluation::automatic) {
        int64_t passes = 0;
        for (const Candidate& candidate : possible) passes += count_passes(candidate);
        plan.evaluation = passes <= kPassesToSimulate ? Evaluation::simulation : Evaluation::search;
    }

    Evaluated evaluated = plan.evaluation == Evaluation::search
                              ? search_best(options, possible)
                              : evaluate_all(options, possible, plan.evaluation);
    plan.rows = std::move(evaluated.rows);
    plan.search = evaluated.counts;
    std::move(evaluated.skipped.begin(), evaluated.skipped.end(), std::back_inserter(plan.skipped));
    if (!plan.search.complete) return plan;
    if (plan.rows.empty()) {
        throw UsageError(plan.skipped.empty() ? "nothing to plan: no schedule is selected"
                                              : "no candidate is possible: " +
                                                    to_string(plan.skipped.front().first) + ": " +
                                                    plan.skipped.front().second);
    }
    add_sensitivity(plan);
    add_lengths(plan);
    return plan;
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "src/plan/search.hpp"

#include "src/plan/evaluate.hpp"
#include "src/plan/order_cache.hpp"
#include "src/plan/parallel.hpp"
#include "src/plan/plan_progress.hpp"
#include "src/plan/step_bound.hpp"
#include "src/plan/step_model.hpp"
#include "src/plan/unit_costs.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <tuple>

namespace vocabpipe {

namespace {

/// Candidates that are timed before the search looks whether it is done: the same number on any
/// number of threads, so that rows do not depend on threads.
constexpr size_t kBatch = 96;
/// The same of one kind of vocabulary layers, and at most so many.
constexpr size_t kBatchOfKind = 16, kMostOfKind = 192;

/// A row and its candidate's place in the list.
struct Found {
    PlanRow row;
    size_t index = 0;
};

/// Rows that fit come first, and of these the simulated ones, then by time; candidates that do not
/// fit are sorted by the memory they lack. At equal time the one with less memory comes first; then
/// the order in which they were listed.
bool better(const Found& a, const Found& b) {
    const auto by = [](const Found& found) {
        const PlanRow& row = found.row;
        const int64_t ns = row.fits() ? row.step_ns : 0;
        return std::tuple(!row.fits(), row.evaluation != Evaluation::simulation, ns,
                          -row.spare_bytes, found.index);
    };
    return by(a) < by(b);
}

class Search {
public:
    Search(const PlanOptions& options, const std::vector<Candidate>& candidates)
        : options_(options),
          candidates_(candidates),
          wanted_(static_cast<size_t>(options.best)),
          evaluator_(options) {}

    /// Adds rows for these candidates.
    void evaluate_these(const std::vector<size_t>& indices, Evaluation how,
                        PlanProgress& progress) {
        std::vector<std::optional<PlanRow>> rows(indices.size());
        std::vector<std::string> reasons(indices.size());
        for_all(indices.size(), options_.threads, options_.stop, [&](size_t i) {
            try {
                rows[i] = evaluator_.row(candidates_[indices[i]], how, orders_);
            } catch (const UsageError& error) {
                reasons[i] = error.what();
            }
            progress.step();
        });
        for (size_t i = 0; i < indices.size(); ++i) {
            if (rows[i]) {
                found_.push_back({std::move(*rows[i]), indices[i]});
                ++(how == Evaluation::simulation ? counts_.simulated : counts_.timed);
            } else if (!reasons[i].empty()) {
                skipped_.emplace_back(indices[i], std::move(reasons[i]));
            }
        }
        std::sort(found_.begin(), found_.end(), better);
    }

    void search() {
        find_bounds();
        if (stopped()) return;
        const int64_t memory = options_.gpu_memory_bytes();
        std::vector<size_t> may_fit, too_large;
        for (size_t i = 0; i < candidates_.size(); ++i) {
            (bounds_[i].memory_bytes <= memory ? may_fit : too_large).push_back(i);
        }
        PlanProgress progress(options_, "timing passes", 0);
        const size_t slower = search_among(
            may_fit, progress, [](const StepBound& bound) { return bound.fitting_step_ns; },
            [](const PlanRow& row) {
                return row.fits() ? std::optional(row.step_ns) : std::nullopt;
            });
        counts_.too_large = too_large.size();
        if (slower == 0 && !stopped()) {  // else there are rows enough that fit
            counts_.too_large = search_among(
                too_large, progress, [](const StepBound& bound) { return bound.memory_bytes; },
                [](const PlanRow& row) { return std::optional(row.worst.total()); });
        }
        for (const bool kind : {true, false}) find_some(kind, may_fit, progress);
        if (!stopped()) simulate_best();
    }

    Evaluated result() && {
        Evaluated result{.rows = {}, .skipped = {}, .counts = counts_};
        result.counts.candidates = candidates_.size();
        result.counts.complete = !stopped();
        for (Found& found : found_) result.rows.push_back(std::move(found.row));
        std::sort(skipped_.begin(), skipped_.end());
        for (auto& [index, reason] : skipped_) {
            result.skipped.emplace_back(candidates_[index], std::move(reason));
        }
        const size_t seen = result.rows.size() + skipped_.size() + result.counts.too_large;
        if (result.counts.complete) result.counts.slower = candidates_.size() - seen;
        return result;
    }

private:
    [[nodiscard]] bool stopped() const { return options_.stop && options_.stop(); }

    /// Candidates of the same mesh, microbatch size and recomputation follow each other, and share
    /// what their layers cost.
    void find_bounds() {
        bounds_.resize(candidates_.size());
        const auto step_of = [&](size_t i) {
            const Candidate& c = candidates_[i];
            return std::tuple(c.mesh.pipeline, c.mesh.data, c.mesh.tensor, c.mesh.expert,
                              c.expert_tensor, c.mesh.context, c.micro_batch_size, c.recompute);
        };
        std::vector<size_t> first;
        for (size_t i = 0; i < candidates_.size(); ++i) {
            if (i == 0 || step_of(i) != step_of(i - 1)) first.push_back(i);
        }
        first.push_back(candidates_.size());
        const int64_t memory = options_.gpu_memory_bytes();
        PlanProgress progress(options_, "finding lower bounds", candidates_.size());
        for_all(first.size() - 1, options_.threads, options_.stop, [&](size_t step) {
            const UnitCosts units = options_.profile
                                        ? UnitCosts()
                                        : unit_costs(evaluator_.model(), candidates_[first[step]]);
            for (size_t i = first[step]; i < first[step + 1]; ++i) {
                try {
                    bounds_[i] = bound_step(
                        step_model(options_, units, candidates_[i], /*bucket_parts=*/false),
                        candidates_[i], memory);
                } catch (const UsageError&) {
                    // Without a bound it is evaluated, which says why it is impossible.
                }
                progress.step();
            }
        });
    }

    /// Times `indices` in the order of `bound` until there are as many rows as wanted whose `value`
    /// no other candidate can undercut. Returns how many were not timed.
    template <typename Bound, typename Value>
    size_t search_among(std::vector<size_t> indices, PlanProgress& progress, const Bound& bound,
                        const Value& value) {
        const auto of = [&](size_t i) { return bound(bounds_[i]); };
        std::stable_sort(indices.begin(), indices.end(),
                         [&](size_t a, size_t b) { return of(a) < of(b); });
        size_t next = 0;
        while (next < indices.size() && !stopped()) {
            size_t end = indices.size();
            if (const std::optional<int64_t> worst = last_wanted(value)) {
                const auto beyond =
                    std::find_if(indices.begin() + static_cast<std::ptrdiff_t>(next), indices.end(),
                                 [&](size_t i) { return of(i) > *worst; });
                end = static_cast<size_t>(beyond - indices.begin());
            }
            if (end == next) break;
            progress.expect(counts_.timed + end - next);
            end = std::min(end, next + kBatch);
            std::vector<size_t> batch(indices.begin() + static_cast<std::ptrdiff_t>(next),
                                      indices.begin() + static_cast<std::ptrdiff_t>(end));
            // Candidates that share an order (OrderCache) apart, so that threads do not wait.
            std::stable_sort(batch.begin(), batch.end(), [&](size_t a, size_t b) {
                return candidates_[a].vocab_mode < candidates_[b].vocab_mode;
            });
            evaluate_these(batch, Evaluation::pass_times, progress);
            next = end;
        }
        return indices.size() - next;
    }

    /// The value of the last row that is wanted; none while there are fewer.
    template <typename Value>
    [[nodiscard]] std::optional<int64_t> last_wanted(const Value& value) const {
        if (found_.size() < wanted_) return std::nullopt;
        return value(found_[wanted_ - 1].row);
    }

    /// Times candidates whose vocabulary layers are sharded, or not, if no row of this kind fits
    /// yet: the most promising ones, until none of the next can be faster than one that fits.
    /// Reports compare the best row of both kinds.
    void find_some(bool kind, std::vector<size_t> indices, PlanProgress& progress) {
        if (fits_of(kind, Evaluation::pass_times)) return;
        std::vector<bool> timed(candidates_.size(), false);
        for (const Found& found : found_) timed[found.index] = true;
        std::erase_if(indices, [&](size_t i) {
            return timed[i] || candidates_[i].shards_vocabulary() != kind;
        });
        const auto bound = [&](size_t i) { return bounds_[i].fitting_step_ns; };
        std::stable_sort(indices.begin(), indices.end(),
                         [&](size_t a, size_t b) { return bound(a) < bound(b); });
        indices.resize(std::min(indices.size(), kMostOfKind));
        while (!indices.empty() && !stopped()) {
            const size_t count = std::min(indices.size(), kBatchOfKind);
            progress.expect(counts_.timed + count);
            evaluate_these({indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(count)},
                           Evaluation::pass_times, progress);
            indices.erase(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(count));
            const Found* const best = fits_of(kind, Evaluation::pass_times);
            if (best && (indices.empty() || best->row.step_ns <= bound(indices.front()))) return;
        }
    }

    /// The best row of this kind that fits, if any.
    [[nodiscard]] const Found* fits_of(bool kind, Evaluation how) const {
        const auto found = std::find_if(found_.begin(), found_.end(), [&](const Found& f) {
            return f.row.fits() && f.row.evaluation == how &&
                   f.row.candidate.shards_vocabulary() == kind;
        });
        return found == found_.end() ? nullptr : &*found;
    }

    /// Simulates the best by pass times, until as many of them as wanted fit by simulation, too.
    void simulate_best() {
        std::vector<Found> timed(std::make_move_iterator(found_.begin()),
                                 std::make_move_iterator(found_.end()));
        found_.clear();
        PlanProgress progress(options_, "simulating the best", wanted_);
        const auto fitting = [&] {
            return static_cast<size_t>(std::count_if(found_.begin(), found_.end(),
                                                     [](const Found& f) { return f.row.fits(); }));
        };
        size_t next = 0;
        while (next < timed.size() && fitting() < wanted_ && !stopped()) {
            // Once as many as wanted are simulated, one that does not fit replaces nothing.
            if (next >= wanted_ && !timed[next].row.fits()) break;
            const size_t end = std::min(timed.size(), next + wanted_ - fitting());
            std::vector<size_t> batch;
            for (; next < end; ++next) batch.push_back(timed[next].index);
            progress.expect(next);
            evaluate_these(batch, Evaluation::simulation, progress);
        }
        for (const bool kind : {true, false}) {
            if (fits_of(kind, Evaluation::simulation)) continue;
            const auto first =
                std::find_if(timed.begin() + static_cast<std::ptrdiff_t>(next), timed.end(),
                             [&](const Found& f) {
                                 return f.row.fits() && f.row.candidate.shards_vocabulary() == kind;
                             });
            if (first == timed.end()) continue;
            evaluate_these({first->index}, Evaluation::simulation, progress);
        }
        std::vector<bool> simulated(candidates_.size(), false);
        for (const Found& found : found_) simulated[found.index] = true;
        for (Found& found : timed) {
            if (!simulated[found.index]) found_.push_back(std::move(found));
        }
        std::sort(found_.begin(), found_.end(), better);
    }

    const PlanOptions& options_;
    const std::vector<Candidate>& candidates_;
    const size_t wanted_;
    const Evaluator evaluator_;
    OrderCache orders_;
    std::vector<StepBound> bounds_;                        ///< [candidate]
    std::vector<Found> found_;                             ///< best first
    std::vector<std::pair<size_t, std::string>> skipped_;  ///< candidate, reason
    PlanSearch counts_;
};

}  // namespace

Evaluated evaluate_all(const PlanOptions& options, const std::vector<Candidate>& candidates,
                       Evaluation evaluation) {
    Search search(options, candidates);
    std::vector<size_t> all(candidates.size());
    std::iota(all.begin(), all.end(), size_t{0});
    PlanProgress progress(
        options, evaluation == Evaluation::simulation ? "simulating" : "timing passes", all.size());
    search.evaluate_these(all, evaluation, progress);
    return std::move(search).result();
}

Evaluated search_best(const PlanOptions& options, const std::vector<Candidate>& candidates) {
    Search search(options, candidates);
    search.search();
    return std::move(search).result();
}

}  // namespace vocabpipe

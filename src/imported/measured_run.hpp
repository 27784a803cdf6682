// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/imported/named_range.hpp"
#include "src/imported/range_rules.hpp"
#include "vocabpipe/pass.hpp"
#include "vocabpipe/recorded_run.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace vocabpipe::imported {

/// A pass that a trainer ran.
struct MeasuredPass {
    static constexpr int64_t kUnknown = INT64_MIN;  ///< a moment that nobody recorded

    Pass pass;                      ///< F, B, I, W or R of a stage and microbatch
    int64_t begin_ns = 0;           ///< when it began to compute: after the wait for its input
    int64_t end_ns = 0;             ///< when its result was there
    int64_t posted_ns = kUnknown;   ///< when its rank began to receive its input
    int64_t arrived_ns = kUnknown;  ///< when its input had arrived from another rank
    int64_t sent_ns = kUnknown;     ///< when its rank began to send its result to another rank
};

/// The passes of one step, [rank] in the order in which the rank ran them.
using MeasuredStep = std::vector<std::vector<MeasuredPass>>;

/// Passes of whole steps of one pipeline.
struct MeasuredRun {
    std::string title;               ///< for people
    int stages = 0;                  ///< of the whole pipeline
    int microbatches = 0;            ///< of a step
    std::vector<int> rank_of_stage;  ///< stages entries
    std::vector<std::string> hosts;  ///< [rank]; empty text: not known
    std::vector<MeasuredStep> steps;
    int left_out = 0;  ///< steps that began or ended outside the recording

    [[nodiscard]] int ranks() const { return static_cast<int>(hosts.size()); }
    /// First begin to last end of a step over all ranks, in ns.
    [[nodiscard]] static int64_t makespan_ns(const MeasuredStep& step);
    /// Index of the step that is half way from the shortest to the longest.
    [[nodiscard]] size_t median_step() const;
};

/// Finds passes of a step by what they make.
class StepIndex {
public:
    /// `step` must outlive it.
    StepIndex(const MeasuredStep& step, int stages);

    struct Place {
        int rank = 0;
        size_t position = 0;  ///< in the rank's list
    };
    /// The pass whose result a pass needs: F of the stage before; for a backward that of the stage
    /// after, in the last stage F; for W its I. None for the F of the first stage, for R, and where
    /// the step lacks it.
    [[nodiscard]] std::optional<Place> input_of(const Pass& pass) const;

private:
    using Key = std::tuple<Op, uint16_t, uint32_t>;  ///< op, stage, microbatch; I counts as B
    std::map<Key, Place> places_;
    int stages_;
};

/// What turns ranges into passes.
struct ReadOptions {
    int microbatches = 0;  ///< of a step, for rules whose patterns lack {microbatch}; 0: not given
};

/// The passes among the ranges of all ranks, whose numbers are the places in the list. A rank's
/// step ends before a range of a pass that it already has; steps that lack passes are left out.
/// Throws InputFileError naming the file of a rank without passes, of a stage that two ranks have,
/// or of the first pass that every step lacks; UsageError where ReadOptions::microbatches is
/// needed.
[[nodiscard]] MeasuredRun find_passes(std::vector<RankRanges> ranks, const RangeRules& rules,
                                      const ReadOptions& options = {});

/// One step as a run for pictures and reports: its passes in the compute lane and, where a pass
/// needs the result of another rank, the message from the moment it was sent (or, if that is not
/// known, made) until it had arrived (or the pass began).
[[nodiscard]] RecordedRun record_step(const MeasuredRun& run, size_t step);

/// Rows "rank,op,stage,ns" below a line that says so, as `vocabpipe simulate --pass-times` reads
/// them (docs/plan-with-your-own-times.md): the mean over steps and microbatches of the time from
/// the moment a pass could begin until its end.
[[nodiscard]] std::string pass_times_csv(const MeasuredRun& run);

}  // namespace vocabpipe::imported

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/measure/measure_links.hpp"
#include "src/train/measure/pass_meter.hpp"
#include "src/train/measure/run_report.hpp"
#include "src/train/run/training_plan.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Measures the steps of a run on one rank: how long passes and steps take, how busy the rank is,
/// and, once, how long messages take.
class RunMeter {
public:
    /// Of the step that `plan` of the rank's plans just ran.
    void add_step(TrainedRank& rank, size_t plan, int64_t duration_ns);
    /// Steps have another size from now on.
    void forget_durations();

    /// Passes of the steps so far, and links. Collective.
    [[nodiscard]] MeasuredCosts measure(const TrainingPlan& plan, TrainedRank& rank);
    [[nodiscard]] const RankUsage& usage() const { return usage_; }
    /// Of measure(): medians, and the passes that no step showed.
    [[nodiscard]] const std::vector<LinkSample>& links() const { return links_.median; }
    [[nodiscard]] const std::vector<Op>& derived() const { return derived_; }

private:
    RankUsage usage_;
    PassMeter passes_;
    LinkTimes links_;
    std::vector<Op> derived_;
};

}  // namespace vocabpipe

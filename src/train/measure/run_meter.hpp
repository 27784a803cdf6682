// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/measure/measure_links.hpp"
#include "src/train/measure/pass_meter.hpp"
#include "src/train/measure/run_report.hpp"
#include "src/train/plan/training_plan.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Measures the steps of a run on one rank: durations of passes and steps, how busy the rank is,
/// and, once, the times of messages.
class RunMeter {
public:
    /// Adds the step that the rank just ran.
    void add_step(TrainedRank& rank, int64_t duration_ns);
    /// Call when the size of steps changes.
    void forget_durations();

    /// Costs of the passes so far, and of links. Collective.
    [[nodiscard]] MeasuredCosts measure(const TrainingPlan& plan, TrainedRank& rank);
    [[nodiscard]] const RankUsage& usage() const { return usage_; }
    /// After measure(): median times of links, and passes that no step showed.
    [[nodiscard]] const std::vector<LinkSample>& links() const { return links_.median; }
    [[nodiscard]] const std::vector<Op>& derived() const { return derived_; }

private:
    RankUsage usage_;
    PassMeter passes_;
    LinkTimes links_;
    std::vector<Op> derived_;
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/costs/cost_source.hpp"
#include "src/tool/schedule/schedule_flags.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/schedule.hpp"

#include <optional>
#include <string>

namespace vocabpipe::python {

/// A schedule, and what its passes do not say.
struct DescribedSchedule {
    Schedule schedule;
    std::string name;                        ///< of its family, or what its maker called it
    VocabMode vocab_mode = VocabMode::none;  ///< how its vocabulary passes were placed
    Recompute recompute = Recompute::none;   ///< what its R make again

    /// "1f1b one_barrier, 4 ranks, 8 microbatches".
    [[nodiscard]] std::string title() const;
};

/// What passes and messages cost, in figures, and the sizes of the model that they are of.
struct Costs {
    tool::ScheduleFlags flags;  ///< those of `vocabpipe simulate` that describe costs and sizes
    std::string pass_times;     ///< rows "rank,op,stage,ns" with their header; empty: none

    /// Of the figures; 0: they are nanoseconds.
    [[nodiscard]] int ticks_per_unit() const;
    /// The figures for passes of the schedule, for people.
    [[nodiscard]] std::string text(const Schedule& schedule) const;
};

/// Places, prices and orders a step as `vocabpipe simulate` does: the passes of a family's rule, or
/// `passes` with those of the vocabulary that they lack. ScheduleOptions::vocab_size 0: the rows of
/// the model that the costs are of. Throws as make_order().
[[nodiscard]] PricedStep priced_step(const std::string& name, const Schedule* passes,
                                     ScheduleOptions options, Recompute recompute,
                                     const Costs& costs);

/// The schedule as it is, priced.
[[nodiscard]] PricedStep priced_step(const DescribedSchedule& described, const Costs& costs);

}  // namespace vocabpipe::python

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/costs/cost_source.hpp"
#include "src/tool/schedule/figure_costs.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe::bindings {

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
    tool::FigureOptions figures;
    std::string pass_times;  ///< rows "rank,op,stage,ns" with their header; empty: none

    /// Ticks per unit of the figures; 0: they are nanoseconds.
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

/// The pass of a schedule with this letter. Throws UsageError naming the known ones.
[[nodiscard]] Op op_from(std::string_view name);

/// A family's schedule: the passes that priced_step() gives it.
[[nodiscard]] DescribedSchedule made_schedule(const std::string& name,
                                              const ScheduleOptions& options, Recompute recompute,
                                              const Costs& costs);

/// Lists of passes as a schedule (user_schedule()). `barriers`: in_line, one or two.
[[nodiscard]] DescribedSchedule listed_schedule(std::vector<std::vector<Pass>> passes,
                                                const std::string& name, int64_t vocab_size,
                                                const std::string& barriers);

/// The schedule with vocabulary passes. Throws UsageError if it has some, and as make_order().
[[nodiscard]] DescribedSchedule with_vocabulary(const DescribedSchedule& base, VocabMode mode,
                                                int64_t vocab_size, int64_t search_moves,
                                                const Costs& costs);

/// The schedule of a text: "json", or a dialect of CSV (csv_dialect_from()). `name`: for messages.
[[nodiscard]] DescribedSchedule parsed_schedule(const std::string& text, const std::string& name,
                                                const std::string& format);
/// The text of a schedule, in the same formats.
[[nodiscard]] std::string printed_schedule(const DescribedSchedule& described,
                                           const std::string& format);

/// The schedule as it is, priced.
[[nodiscard]] PricedStep priced_step(const DescribedSchedule& described, const Costs& costs);

}  // namespace vocabpipe::bindings

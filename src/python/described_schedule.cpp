// SPDX-License-Identifier: Apache-2.0
#include "src/python/described_schedule.hpp"

#include "src/support/text_layout.hpp"
#include "src/tool/schedule/figure_costs.hpp"
#include "src/tool/schedule/pass_times_file.hpp"
#include "vocabpipe/make_order.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace vocabpipe::python {

std::string DescribedSchedule::title() const {
    std::string text = name + " " + std::string(to_string(vocab_mode)) + ", " +
                       counted(schedule.ranks, "rank") + ", " +
                       counted(schedule.microbatches, "microbatch", "microbatches");
    if (recompute == Recompute::none) return text;
    return text + ", " + std::string(to_string(recompute)) + " recomputation";
}

int Costs::ticks_per_unit() const {
    return pass_times.empty() ? tool::ticks_per_unit(flags) : 0;
}

std::string Costs::text(const Schedule& schedule) const {
    if (!pass_times.empty()) return "pass times";
    tool::ScheduleFlags of_schedule = flags;
    of_schedule.vocab_size = schedule.output.vocab_size();
    return tool::costs_text(of_schedule, schedule.ranks);
}

PricedStep priced_step(const std::string& name, const Schedule* passes, ScheduleOptions options,
                       Recompute recompute, const Costs& costs) {
    tool::ScheduleFlags flags = costs.flags;
    flags.pp = options.ranks;
    flags.microbatches = options.microbatches;
    // Without figures of its own the tool would price passes without a row by a model's FLOPs.
    if (!costs.pass_times.empty()) flags.pass_times = "given";
    if (passes != nullptr && passes->output.vocab_size() > 0) {
        options.vocab_size = passes->output.vocab_size();
    }
    if (options.vocab_size > 0) flags.vocab_size = options.vocab_size;
    options.vocab_size = tool::figured_model(flags, flags.pp).vocabulary_rows;

    std::unique_ptr<CostSource> source = std::make_unique<tool::FigureCosts>(flags, recompute);
    if (!costs.pass_times.empty()) {
        source = std::make_unique<tool::PassTimesFile>(
            tool::PassTimesText{.name = "pass_times", .text = costs.pass_times}, std::move(source),
            /*keep=*/false);
    }
    const bool own = passes != nullptr && has_recomputation(*passes);
    const OrderSource order{
        .name = name, .passes = passes, .recompute = recompute != Recompute::none && !own};
    options.rule.broadcast_margin *= std::max(costs.ticks_per_unit(), 1);
    PricedStep step = price_step(*source, placement_of(order, options), options.vocab_mode);
    order_step(step, order, std::move(options));
    return step;
}

PricedStep priced_step(const DescribedSchedule& described, const Costs& costs) {
    const Schedule& schedule = described.schedule;
    return priced_step(described.name, &schedule,
                       {.ranks = schedule.ranks,
                        .microbatches = schedule.microbatches,
                        .vocab_mode = described.vocab_mode,
                        .forward_only = schedule.forward_only()},
                       described.recompute, costs);
}

}  // namespace vocabpipe::python

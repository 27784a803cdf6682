// SPDX-License-Identifier: Apache-2.0
#include "src/bindings/described_schedule.hpp"

#include "src/support/joined.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/schedule/figure_costs.hpp"
#include "src/tool/schedule/pass_times_file.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_order.hpp"
#include "vocabpipe/schedule_file.hpp"
#include "vocabpipe/user_schedule.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

namespace vocabpipe::bindings {

namespace {

constexpr std::string_view kJson = "json";

Barriers barriers_from(const std::string& name) {
    if (name == "in_line") return Barriers::in_line;
    if (name == "one") return Barriers::one;
    if (name == "two") return Barriers::two;
    throw UsageError("barriers " + name + ": must be in_line, one or two");
}

/// A schedule that says nothing of how it was made.
DescribedSchedule described(Schedule schedule, const std::string& name) {
    const bool recomputes = has_recomputation(schedule);
    return {.schedule = std::move(schedule),
            .name = name,
            .recompute = recomputes ? Recompute::full : Recompute::none};
}

}  // namespace

std::string DescribedSchedule::title() const {
    std::string text = name + " " + std::string(to_string(vocab_mode)) + ", " +
                       counted(schedule.ranks, "rank") + ", " +
                       counted(schedule.microbatches, "microbatch", "microbatches");
    if (recompute == Recompute::none) return text;
    return text + ", " + std::string(to_string(recompute)) + " recomputation";
}

int Costs::ticks_per_unit() const {
    return pass_times.empty() ? tool::ticks_per_unit(figures) : 0;
}

std::string Costs::text(const Schedule& schedule) const {
    if (!pass_times.empty()) return "pass times";
    tool::FigureOptions of_schedule = figures;
    of_schedule.vocab_size = schedule.output.vocab_size();
    return tool::costs_text(of_schedule, schedule.ranks);
}

PricedStep priced_step(const std::string& name, const Schedule* passes, ScheduleOptions options,
                       Recompute recompute, const Costs& costs) {
    tool::FigureOptions figures = costs.figures;
    figures.replaced = !costs.pass_times.empty();
    if (passes != nullptr && passes->output.vocab_size() > 0) {
        options.vocab_size = passes->output.vocab_size();
    }
    if (options.vocab_size > 0) figures.vocab_size = options.vocab_size;
    options.vocab_size = tool::figured_model(figures, options.ranks).vocabulary_rows;

    std::unique_ptr<CostSource> source = std::make_unique<tool::FigureCosts>(figures, recompute);
    if (!costs.pass_times.empty()) {
        source = std::make_unique<tool::PassTimesFile>(
            tool::PassTimesText{.name = "pass_times", .text = costs.pass_times}, std::move(source),
            /*keep=*/false);
    }
    const bool own = passes != nullptr && has_recomputation(*passes);
    const OrderSource order{
        .name = name, .passes = passes, .recompute = recompute != Recompute::none && !own};
    // A margin of more than any backward is as good as the largest; what is negative is refused in
    // the unit of the caller.
    int64_t& margin = options.rule.broadcast_margin;
    const int64_t ticks = std::max(costs.ticks_per_unit(), 1);
    if (margin > 0) margin = std::min(margin, std::numeric_limits<int64_t>::max() / ticks) * ticks;
    PricedStep step = price_step(*source, placement_of(order, options), options.vocab_mode);
    order_step(step, order, std::move(options));
    return step;
}

Op op_from(std::string_view name) {
    std::vector<std::string_view> known;
    for (size_t op = 0; op < kOpTraits.size(); ++op) {
        if (kOpTraits[op].of_step) continue;
        if (kOpTraits[op].name == name) return static_cast<Op>(op);
        known.push_back(kOpTraits[op].name);
    }
    throw UsageError("op " + std::string(name) + ": must be one of " + joined(known));
}

DescribedSchedule made_schedule(const std::string& name, const ScheduleOptions& options,
                                Recompute recompute, const Costs& costs) {
    return {.schedule = priced_step(name, nullptr, options, recompute, costs).schedule,
            .name = name,
            .vocab_mode = options.vocab_mode,
            .recompute = recompute};
}

DescribedSchedule listed_schedule(std::vector<std::vector<Pass>> passes, const std::string& name,
                                  int64_t vocab_size, const std::string& barriers) {
    return described(user_schedule(std::move(passes),
                                   {.vocab_size = vocab_size, .barriers = barriers_from(barriers)}),
                     name);
}

DescribedSchedule with_vocabulary(const DescribedSchedule& base, VocabMode mode, int64_t vocab_size,
                                  int64_t search_moves, const Costs& costs) {
    if (base.schedule.output.vocab_size() > 0) {
        throw UsageError("schedule " + base.name +
                         ": has vocabulary passes already; give one without");
    }
    DescribedSchedule made = base;
    made.vocab_mode = mode;
    made.schedule = priced_step(base.name, &base.schedule,
                                {.ranks = base.schedule.ranks,
                                 .microbatches = base.schedule.microbatches,
                                 .vocab_mode = mode,
                                 .vocab_size = vocab_size,
                                 .rule = {.search_moves = search_moves}},
                                base.recompute, costs)
                        .schedule;
    return made;
}

DescribedSchedule parsed_schedule(const std::string& text, const std::string& name,
                                  const std::string& format) {
    if (format == kJson) return described(parse_schedule_json(text, name).schedule, name);
    const ReadScheduleOptions options{.dialect = csv_dialect_from(format)};
    return described(parse_schedule_csv(text, name, options).schedule, name);
}

std::string printed_schedule(const DescribedSchedule& described, const std::string& format) {
    if (format == kJson) return print_schedule_json(described.schedule);
    return print_schedule_csv(described.schedule, csv_dialect_from(format));
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

}  // namespace vocabpipe::bindings

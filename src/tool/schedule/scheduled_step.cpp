// SPDX-License-Identifier: Apache-2.0
// The way of a step that is asked for: priced, ordered, lowered and simulated.
#include "src/tool/schedule/scheduled_step.hpp"

#include "src/step/costs/length_sizes.hpp"
#include "src/tool/schedule/length_counts.hpp"
#include "src/tool/support/long_work.hpp"
#include "src/tool/support/progress.hpp"
#include "src/tool/support/text.hpp"
#include "vocabpipe/microbatch_order.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace vocabpipe::tool {

namespace {

/// The title with what the price and the costs of the step add.
std::string title_of(const AskedStep& asked, const std::string& remark, const TableCosts& costs) {
    std::string title = asked.title;
    if (!remark.empty()) title += ", " + remark;
    if (costs.free_vocabulary_collectives) title += ", vocabulary collectives free";
    if (costs.communication != CommunicationOrder::lanes) {
        title += ", communication order " + std::string(to_string(costs.communication));
    }
    return title;
}

/// Gives the microbatches of an ordered step their lengths, in an order that makes it short.
void order_lengths(PricedStep& step, const AskedStep& asked) {
    std::vector<int> of_microbatch;
    for (size_t i = 0; i < asked.lengths.size(); ++i) {
        of_microbatch.insert(of_microbatch.end(), static_cast<size_t>(asked.lengths[i].count),
                             static_cast<int>(i));
    }
    MicrobatchLengths& lengths = step.price.order.lengths;
    lengths.shorter = asked.shorter;
    lengths.of_microbatch =
        order_microbatches(step.schedule, step.price.order, std::move(of_microbatch));
    step.price.costs.lengths = lengths;
    StepSizes& sizes = step.price.sizes;
    sizes.length_of_microbatch = lengths.of_microbatch;
    for (size_t i = 1; i < asked.lengths.size(); ++i) {
        sizes.shorter.push_back(
            length_sizes(sizes, asked.lengths[i].length, asked.lengths.front().length));
    }
}

/// Orders the passes. A search is last, and of the lengths' costs where there are several.
void order(PricedStep& step, const AskedStep& asked) {
    ScheduleOptions options = asked.options;
    const int64_t moves = options.rule.search_moves;
    ProgressLine line(/*everywhere=*/true);
    options.search_progress = [&](int64_t done) {
        line.show("searched " + std::to_string(done) + " of " + std::to_string(moves) + " moves");
    };
    if (!asked.lengths.empty()) options.rule.search_moves = 0;
    order_step(step, asked.source(), options);
    if (asked.lengths.empty()) return;
    order_lengths(step, asked);
    options.costs = step.price.order;
    options.rule.search_moves = moves;
    step.schedule = finish_schedule(std::move(step.schedule), options);
}

}  // namespace

ScheduledStep make_step(AskedStep asked) {
    PricedStep priced = price_step(*asked.costs, std::move(asked.placed), asked.options.vocab_mode);
    order(priced, asked);
    StepPrice& price = priced.price;
    TableCosts& costs = price.costs;
    if (asked.piece_ns) costs.piece_ns = *asked.piece_ns;
    if (asked.communication) costs.communication = *asked.communication;
    costs.free_vocabulary_collectives = asked.free_vocabulary_collectives;
    ScheduledStep step;
    step.title = title_of(asked, price.remark, costs);
    step.default_mode = asked.default_mode;
    step.model = asked.model;
    if (!priced.layers.empty()) {
        step.model.layers = std::accumulate(priced.layers.begin(), priced.layers.end(), int64_t{0});
    }
    step.lengths = std::move(asked.lengths);
    step.costs_of = std::move(asked.costs_of);
    step.ticks_per_unit = asked.ticks_per_unit;
    step.options = {.wait_for_reports = asked.wait_for_reports,
                    .persistent = price.persistent,
                    .cores = asked.cores};
    step.schedule = std::move(priced.schedule);
    step.sizes = std::move(price.sizes);
    step.costs = std::move(price.costs);
    step.persistent = std::move(price.persistent);
    return step;
}

std::string lengths_text(const ScheduledStep& step) {
    return length_order_text(step.lengths, step.sizes.length_of_microbatch);
}

std::string heading(const ScheduledStep& step) {
    std::string text = wrap_text(one_line(step.title)) + "\n";
    text += step.ticks_per_unit > 0
                ? wrap_text("times in the unit of the costs of a rank: " + one_line(step.costs_of) +
                                "; V: S, and T, of an even share of the rows; I, W: half of B; E, "
                                "G: a quarter of V",
                            2)
                : wrap_text("costs: " + one_line(step.costs_of), 2);
    text += "\n";
    if (!step.lengths.empty()) {
        text +=
            wrap_text("sequence lengths of the microbatches in order: " + lengths_text(step), 2) +
            "\n";
    }
    if (step.default_mode) {
        text += wrap_text(
                    "vocabulary mode none, the schedule as published, because no "
                    "--vocab-mode is given (train_gpt: one_barrier)",
                    2) +
                "\n";
    }
    return text;
}

SimulatedStep simulate_step(const std::string& schedule, const ScheduleFlags& flags) {
    SimulatedStep result;
    std::optional<LongWork> work;
    // A search shows its own progress.
    if (flags.rule.search_moves == 0) work.emplace("simulating " + schedule);
    result.step = make_step(asked_step(schedule, flags, kMostPassesToLower));
    if (!work) work.emplace("simulating " + schedule);
    result.step.costs.slices = result.step.mesh().slices();
    const ScheduledStep& step = result.step;
    static_cast<SimulatedPrograms&>(result) =
        simulate_programs(step.schedule, step.sizes, step.costs, step.options, flags.receive_ahead,
                          flags.tile_pieces);
    result.step.title += result.remark();
    return result;
}

}  // namespace vocabpipe::tool

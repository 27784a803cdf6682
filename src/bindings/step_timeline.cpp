// SPDX-License-Identifier: Apache-2.0
#include "src/bindings/step_timeline.hpp"

#include "src/schedule/html/timeline_parts.hpp"
#include "src/tool/support/quantity.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace vocabpipe::bindings {

double StepTimeline::time(int64_t ns) const {
    return static_cast<double>(ns) / std::max(run.ticks_per_unit, 1);
}

TimeText StepTimeline::text() const {
    return [ticks = run.ticks_per_unit](int64_t ns) { return tool::time_text(ns, ticks); };
}

const tool::SimulatedPrograms& StepTimeline::simulation(const char* what) const {
    if (simulated) return *simulated;
    throw UsageError(std::string(what) + ": is for simulated steps; " + run.title +
                     " is a trace, which says what has run");
}

StepTimeline simulated_step(const DescribedSchedule& described, const Costs& costs,
                            const SimulationRequest& request) {
    const PricedStep step = priced_step(described, costs);
    tool::SimulatedPrograms made =
        tool::simulate_programs(step.schedule, step.price.sizes, step.price.costs,
                                {.wait_for_reports = request.wait_for_reports,
                                 .persistent = step.price.persistent,
                                 .cores = request.cores},
                                request.receive_ahead, request.tile_pieces);
    StepTimeline result{.run = record(made.simulation.timeline, made.programs,
                                      described.title() + made.remark(), step.price.persistent),
                        .summary = made.simulation.summary};
    result.run.ticks_per_unit = costs.ticks_per_unit();
    result.run.costs = costs.text(step.schedule);
    result.simulated = std::move(made);
    return result;
}

StepTimeline recorded_step(const std::string& path) {
    RecordedRun run = read_chrome_trace(path);
    TimelineSummary summary = summarize(run);
    return {.run = std::move(run), .summary = std::move(summary)};
}

std::string explained(const StepTimeline& of, std::optional<int> rank, std::optional<double> at) {
    if (rank.has_value() != at.has_value()) {
        throw UsageError(rank ? "rank " + std::to_string(*rank) + ": requires a time; add at"
                              : "at: requires a rank; add rank");
    }
    if (!rank) return to_text(of.run, of.text());
    const double ticks = std::max(of.run.ticks_per_unit, 1);
    const double ns = *at * ticks;
    if (!(ns >= 0 && ns <= static_cast<double>(of.summary.makespan_ns))) {
        throw UsageError("at " + std::to_string(*at) + ": must be within the step, from 0 to " +
                         of.text()(of.summary.makespan_ns));
    }
    return to_text(of.run, *rank, std::llround(ns), of.text());
}

std::string page(const StepTimeline& of) {
    const html::TimelineParts parts = html::timeline_parts(of.run.title, of.run.ticks_per_unit);
    return parts.before + html::run_element(of.run) + parts.after;
}

}  // namespace vocabpipe::bindings

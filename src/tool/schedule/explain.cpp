// SPDX-License-Identifier: Apache-2.0
// vocabpipe explain: why a rank is idle, and what makes up the length of the step.
#include "vocabpipe/explain.hpp"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "src/support/text_layout.hpp"
#include "src/tool/schedule/scheduled_step.hpp"
#include "src/tool/schedule/trace_files.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/long_work.hpp"
#include "src/tool/support/quantity.hpp"
#include "src/tool/support/text.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/recorded_run.hpp"

namespace vocabpipe::tool {

namespace {

struct ExplainArguments {
    std::string schedule;
    ScheduleFlags flags;
    std::optional<int> rank;
    std::string at;  // empty: not given
};

void explain_trace(const ExplainArguments& options, const GivenFlags& given) {
    for (const auto& [flag, words] : given) {
        if (flag == "FILE" || flag == "--rank" || flag == "--at" || flag == "SCHEDULE") continue;
        throw UsageError(flag + ": is for schedules that are simulated; " + options.schedule +
                         " is a trace, which says what has run");
    }
    const RecordedRun run = [&] {
        const LongWork work("reading " + options.schedule);
        return read_chrome_trace(options.schedule);
    }();
    const auto time = [&](int64_t ns) { return time_text(ns, run.ticks_per_unit); };
    std::string text = one_line(run.title) + "\n";
    if (!options.at.empty()) {
        text += "\n" + to_text(run, *options.rank,
                               parse_time("--at", options.at, run.ticks_per_unit), time);
    } else {
        text += to_text(run, time);
    }
    std::printf("%s", wrap_text(text, 4).c_str());
}

void explain_step(const ExplainArguments& options, const GivenFlags& given) {
    if (options.rank.has_value() == options.at.empty()) {
        throw UsageError(options.at.empty()
                             ? "--rank " + std::to_string(*options.rank) +
                                   ": requires a time; add --at T"
                             : "--at " + options.at + ": requires a rank; add --rank R");
    }
    if (is_trace(options.schedule)) return explain_trace(options, given);
    ScheduleFlags flags = options.flags;
    const std::string name = take_own_flags(options.schedule, flags);
    const SimulatedStep simulated = simulate_step(name, flags);
    const Timeline& timeline = simulated.simulation.timeline;
    std::string text;
    const int ticks = simulated.step.ticks_per_unit;
    const auto time = [&](int64_t ns) { return time_text(ns, ticks); };
    if (!options.at.empty()) {
        const int64_t at = parse_time("--at", options.at, ticks);
        const int64_t makespan = simulated.simulation.summary.makespan_ns;
        if (at > makespan) {
            throw UsageError("--at " + options.at + ": must be within the step, from 0 to " +
                             time_text(makespan, ticks));
        }
        text += to_text(explain(timeline, simulated.programs, *options.rank, at), time,
                        simulated.step.mesh()) +
                "\n";
    }
    {
        const LongWork work("explaining " + name);
        text += to_text(critical_path(timeline, simulated.programs), time);
    }
    std::printf("%s\n%s", heading(simulated.step).c_str(), wrap_text(text, 4).c_str());
}

}  // namespace

Command explain_command() {
    const auto o = std::make_shared<ExplainArguments>();
    return {
        .name = "explain",
        .description =
            "Explain where the time of a step goes: its critical path, why a rank is idle at a\n"
            "given time, and of a trace from train_gpt --trace-dir what each rank did",
        .flags = {{.flags = {schedule_argument(o->schedule)}},
                  schedule_source_flags(o->flags),
                  lowering_flags(o->flags),
                  {.flags = {{.names = "--rank",
                              .value = &o->rank,
                              .help = "Rank to explain",
                              .range = between(0, 65535)},
                             {.names = "--at",
                              .value = &o->at,
                              .help = "Time since the start of the step, such as 12.5ms or a "
                                      "number in the unit of --costs F,B"}}}},
        .run = [o](const GivenFlags& given) { explain_step(*o, given); }};
}

}  // namespace vocabpipe::tool

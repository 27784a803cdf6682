// SPDX-License-Identifier: Apache-2.0
// vocabpipe timeline: draws simulated and measured runs.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/support/output_check.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/schedule/scheduled_step.hpp"
#include "src/tool/schedule/trace_files.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/long_work.hpp"
#include "src/tool/support/quantity.hpp"
#include "src/tool/support/text.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/html_timeline.hpp"
#include "vocabpipe/svg_timeline.hpp"

namespace vocabpipe::tool {

namespace {

struct TimelineArguments {
    std::vector<std::string> runs;
    ScheduleFlags flags;
    std::string html, svg, trace, title;
    bool critical_path = false;
};

void print_summary(const std::vector<RecordedRun>& runs) {
    TextTable table;
    table.row({"ranks", "makespan", "largest span", "bubble", "run"},
              {false, false, false, false, true});
    for (const RecordedRun& run : runs) {
        const TimelineSummary summary = summarize(run);
        // The title of a trace may contain anything.
        table.row({std::to_string(run.ranks), time_text(summary.makespan_ns, run.ticks_per_unit),
                   time_text(summary.largest_span_ns, run.ticks_per_unit),
                   percent_text(summary.bubble), one_line(run.title)});
    }
    std::printf("%s", table.text().c_str());
    std::set<std::string> told;
    for (const RecordedRun& run : runs) {
        if (run.costs.empty() || !told.insert(run.costs).second) continue;
        const char* what = run.ticks_per_unit > 0 ? "times in the unit of the costs: " : "costs: ";
        std::printf("%s\n", wrap_text(what + one_line(run.costs), 2).c_str());
    }
}

void draw_timeline(const TimelineArguments& options) {
    if (options.html.empty() && options.svg.empty() && options.trace.empty()) {
        throw UsageError(
            "timeline: requires an output; add --html FILE, --svg FILE or --trace FILE");
    }
    if (options.critical_path && options.svg.empty()) {
        throw UsageError(
            "--critical-path: is of the picture of --svg, which is not given; in the page "
            "of --html press C");
    }
    std::vector<std::string> inputs{options.flags.costs, options.flags.pass_times};
    for (const std::string& run : options.runs) inputs.push_back(run.substr(0, run.find(',')));
    OutputCheck check(std::move(inputs));
    if (!options.html.empty()) check.add("--html", options.html, page_output());
    if (!options.svg.empty()) check.add("--svg", options.svg, picture_output());
    if (!options.trace.empty()) check.add("--trace", options.trace, trace_output());
    const bool measured = std::any_of(options.runs.begin(), options.runs.end(), is_trace);
    std::vector<RecordedRun> runs;
    std::optional<SimulatedStep> only;  // the last simulated run, for its programs
    for (const std::string& text : options.runs) {
        if (is_trace(text)) {
            runs.push_back(read_chrome_trace(text));
            continue;
        }
        ScheduleFlags flags = options.flags;
        flags.figures.are_ns = measured;
        const std::string name = take_own_flags(text, flags);
        SimulatedStep simulated = simulate_step(name, flags);
        runs.push_back(record(simulated.simulation.timeline, simulated.programs,
                              simulated.step.title, simulated.step.persistent,
                              simulated.step.mesh()));
        runs.back().ticks_per_unit = simulated.step.ticks_per_unit;
        runs.back().costs = simulated.step.costs_of;
        if (options.runs.size() == 1) only = std::move(simulated);
    }
    std::optional<LongWork> work(std::in_place, "writing the timeline");
    if (!options.trace.empty()) {
        if (!only) {
            throw UsageError("--trace " + options.trace +
                             ": a Chrome trace holds one simulated run; use only one schedule");
        }
        write_chrome_trace(options.trace, only->simulation.timeline, only->programs,
                           runs.front().title, runs.front().mesh);
    }
    if (!options.html.empty()) {
        std::string title = options.title;
        if (title.empty()) {
            title = runs.front().title;
            if (runs.size() > 1) title += " and " + std::to_string(runs.size() - 1) + " more";
        }
        write_html_timeline(options.html, runs, title);
    }
    if (!options.svg.empty()) {
        write_svg_timeline(options.svg, runs,
                           {.title = options.title, .critical_path = options.critical_path});
    }
    work.reset();
    print_summary(runs);
}

}  // namespace

Command timeline_command() {
    const auto o = std::make_shared<TimelineArguments>();
    return {
        .name = "timeline",
        .description = "Draw simulated schedules and measured traces, one below the other",
        .flags =
            {{.flags = {{.names = "RUN",
                         .value = &o->runs,
                         .help =
                             "Name of a schedule or its .csv or .json file; NAME,flag=value,... to "
                             "give it its own flags; or a trace from train_gpt --trace-dir",
                         .choices = schedule_names(),
                         .free = true}}},
             schedule_source_flags(o->flags),
             lowering_flags(o->flags),
             {.flags =
                  {{.names = "--html", .value = &o->html, .help = "File for a self-contained page"},
                   {.names = "--svg",
                    .value = &o->svg,
                    .help = "File for an SVG picture of the passes, for documents"},
                   {.names = "--critical-path",
                    .value = &o->critical_path,
                    .help = "Draw what made each step as long as it is into the picture of --svg"},
                   {.names = "--trace",
                    .value = &o->trace,
                    .help = "File for the Chrome trace of one schedule"},
                   {.names = "--title",
                    .value = &o->title,
                    .help = "Title of the page, and of the picture"}}}},
        .run = [o](const GivenFlags&) { draw_timeline(*o); }};
}

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
// vocabpipe explain: why a rank is idle, and what makes up the length of the step.
#include "vocabpipe/explain.hpp"

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/imported/what_if.hpp"
#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/imported/run_files.hpp"
#include "src/tool/schedule/explain_page.hpp"
#include "src/tool/schedule/scheduled_step.hpp"
#include "src/tool/schedule/trace_files.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/long_work.hpp"
#include "src/tool/support/quantity.hpp"
#include "src/tool/support/text.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/recorded_run.hpp"

namespace vocabpipe::tool {

namespace {

struct ExplainArguments {
    std::vector<std::string> runs;
    ScheduleFlags flags;
    ImportFlags import;
    std::optional<double> output_layer_share;
    std::optional<int> rank;
    std::string at;    // empty: not given
    std::string html;  // empty: no page
};

/// The step of a trace, or of other trainers' files.
RecordedRun read_run(const ExplainArguments& options) {
    const std::string& first = options.runs.front();
    if (is_imported_run(first)) {
        ImportFlags flags = options.import;
        flags.microbatches = options.flags.microbatches;
        return imported_step(read_imported_run(options.runs, flags), flags);
    }
    if (options.runs.size() > 1) {
        throw UsageError(options.runs[1] +
                         ": only files of other trainers are several, one of "
                         "every rank; explain one trace at a time");
    }
    const LongWork work("reading " + first);
    return read_chrome_trace(first);
}

void explain_run(const ExplainArguments& options, const GivenFlags& given) {
    for (const auto& [flag, words] : given) {
        if (flag == "RUN" || flag == "--rank" || flag == "--at" || flag == "--rules" ||
            flag == "--microbatches" || flag == "--step" || flag == "--replica" ||
            flag == "--output-layer-share" || flag == "--html") {
            continue;
        }
        throw UsageError(flag + ": is for schedules that are simulated; " + options.runs.front() +
                         " is a trace, which says what has run");
    }
    if (!options.html.empty() && !options.at.empty()) {
        throw UsageError("--html: shows the whole step; omit --rank and --at");
    }
    OutputCheck check(options.runs);
    if (!options.html.empty()) check.add("--html", options.html, page_output());
    const RecordedRun run = read_run(options);
    const TimeText time = [&](int64_t ns) { return time_text(ns, run.ticks_per_unit); };
    std::string text = one_line(run.title) + "\n";
    if (!options.at.empty()) {
        text += "\n" + to_text(run, *options.rank,
                               parse_time("--at", options.at, run.ticks_per_unit), time);
        std::printf("%s", wrap_text(text, 4).c_str());
        return;
    }
    text += to_text(run, time);
    std::printf("%s\n", wrap_text(text, 4).c_str());
    ExplainPage page{.run = run, .time = time};
    std::optional<imported::WhatIf> found;
    try {
        const LongWork work("simulating other schedules");
        page.found = &found.emplace(
            imported::what_if(run, {.output_layer_share = options.output_layer_share}));
        text = imported::to_text(*found, time);
    } catch (const UsageError& error) {
        page.no_replay = std::string("no replay: ") + error.what();
        text = page.no_replay + "\n";
    }
    std::printf("%s", wrap_text(text, 4).c_str());
    if (options.html.empty()) return;
    OutputFile file(options.html);
    file.write(page.html());
    file.publish();
}

void explain_step(const ExplainArguments& options, const GivenFlags& given) {
    if (options.rank.has_value() == options.at.empty()) {
        throw UsageError(options.at.empty()
                             ? "--rank " + std::to_string(*options.rank) +
                                   ": requires a time; add --at T"
                             : "--at " + options.at + ": requires a rank; add --rank R");
    }
    if (is_trace(options.runs.front()) || is_imported_run(options.runs.front())) {
        return explain_run(options, given);
    }
    if (!options.html.empty()) {
        throw UsageError("--html: is of recorded runs, but " + options.runs.front() +
                         " is simulated; draw it with vocabpipe timeline --html");
    }
    for (const char* const flag : {"--rules", "--step", "--replica", "--output-layer-share"}) {
        if (!given.contains(flag)) continue;
        throw UsageError(std::string(flag) + ": is of recorded runs, but " + options.runs.front() +
                         " is simulated; omit the flag");
    }
    if (options.runs.size() > 1) {
        throw UsageError(options.runs[1] + ": is a second schedule; explain one at a time");
    }
    ScheduleFlags flags = options.flags;
    const std::string name = take_own_flags(options.runs.front(), flags);
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
            "Explain where the time of a step goes\n"
            "Its critical path, why a rank is idle at a given time, and of a trace what each "
            "rank did and what would have made it shorter",
        .flags = {{.flags = {{.names = "RUN",
                              .value = &o->runs,
                              .help = "Name of a schedule or its .csv or .json file; a trace from "
                                      "train_gpt --trace-dir or import; or other trainers' files, "
                                      "one of every rank",
                              .choices = schedule_names(),
                              .free = true}}},
                  schedule_source_flags(o->flags),
                  lowering_flags(o->flags),
                  {.flags = {{.names = "--rank",
                              .value = &o->rank,
                              .help = "Rank to explain",
                              .range = between(0, 65535)},
                             {.names = "--at",
                              .value = &o->at,
                              .help = "Time since the start of the step, such as 12.5ms or a "
                                      "number in the unit of --costs F,B"},
                             {.names = "--output-layer-share",
                              .value = &o->output_layer_share,
                              .help = "Part of the last stage's passes that is output layer and "
                                      "loss, of a recorded run",
                              .range = fraction_below_1(),
                              .unset = "what it takes longer than the median stage"},
                             {.names = "--html",
                              .value = &o->html,
                              .help = "File for a page with what is said of a recorded run, and "
                                      "its passes"}}},
                  recorded_step_flags(o->import)},
        .run = [o](const GivenFlags& given) { explain_step(*o, given); }};
}

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
// vocabpipe schedule show: prints a schedule, by name or from a file, as a time grid, CSV or JSON.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

#include "src/support/text_layout.hpp"
#include "src/tool/schedule/scheduled_step.hpp"
#include "src/tool/schedule/time_grid.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/long_work.hpp"
#include "src/tool/support/quantity.hpp"
#include "src/tool/support/terminal.hpp"
#include "src/tool/support/text.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/schedule_file.hpp"

namespace vocabpipe::tool {

namespace {

struct ShowArguments {
    std::string name;
    ScheduleFlags flags;
    std::string format = "grid";
    int width = 0;  // 0: the terminal's
};

int terminal_width() {
    constexpr int kWithoutTerminal = kTextWidth;
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kWithoutTerminal;
    return size.ws_col;
}

std::string stages_of(const Schedule& schedule, int rank) {
    std::string text;
    for (int stage = 0; stage < schedule.stages; ++stage) {
        if (schedule.rank_of_stage[static_cast<size_t>(stage)] == rank) {
            text += (text.empty() ? "" : " ") + std::to_string(stage);
        }
    }
    return text.empty() ? "-" : text;
}

void print_ranks(const Schedule& schedule, const PassTimes& times, int ticks_per_unit) {
    const std::vector<int> peaks = peak_chunks(schedule);
    TextTable table;
    table.row({"rank", "busy", "idle", "bubble", "peak chunks", "stages"},
              {false, false, false, false, false, true});
    double bubbles = 0;
    for (size_t rank = 0; rank < peaks.size(); ++rank) {
        const int64_t idle = times.makespan - times.busy[rank];
        const double bubble = times.makespan == 0 ? 0
                                                  : 100 * static_cast<double>(idle) /
                                                        static_cast<double>(times.makespan);
        bubbles += bubble;
        std::array<char, 32> percent;
        std::snprintf(percent.data(), percent.size(), "%.1f %%", bubble);
        table.row({std::to_string(rank), time_text(times.busy[rank], ticks_per_unit),
                   time_text(idle, ticks_per_unit), percent.data(), std::to_string(peaks[rank]),
                   stages_of(schedule, static_cast<int>(rank))});
    }
    std::array<char, 32> mean;
    std::snprintf(mean.data(), mean.size(), "%.1f %%", bubbles / static_cast<double>(peaks.size()));
    const std::string last = "makespan " + time_text(times.makespan, ticks_per_unit) +
                             ", longest span of a rank " +
                             time_text(times.largest_span, ticks_per_unit) + ", bubble " +
                             mean.data() + " (mean over ranks)";
    std::printf("%s%s\n", table.text().c_str(), wrap_text(last, 2).c_str());
}

void print_grid(const ShowArguments& options, const ScheduledStep& step) {
    const Schedule& schedule = step.schedule;
    const PassTimes times = time_passes(schedule, PassCosts::of(step.costs, step.sizes, schedule));
    std::printf("%s\n", heading(step).c_str());
    // Costs in nanoseconds have no unit: take about a microsecond.
    const int64_t unit = step.ticks_per_unit > 0 ? step.ticks_per_unit : 1000;
    const std::string grid = time_grid(
        schedule, times,
        {.width = options.width > 0 ? options.width : terminal_width(),
         .colour = wants_color(),
         .ticks_per_unit = unit,
         .time_text = [&](int64_t ticks) { return time_text(ticks, step.ticks_per_unit); }});
    std::printf("%s\n", grid.c_str());
    print_ranks(schedule, times, step.ticks_per_unit);
}

void show_schedule(const ShowArguments& options) {
    ScheduleFlags flags = options.flags;
    const std::string name = take_own_flags(options.name, flags);
    if (flags.cores > 0) {
        throw UsageError(
            "--cores " + std::to_string(flags.cores) +
            ": the grid shows every rank on its own core; use vocabpipe simulate or timeline");
    }
    const ScheduledStep step = [&] {
        const LongWork work("ordering " + name);
        return make_step(asked_step(name, flags));
    }();
    if (options.format == "json") {
        std::printf("%s", print_schedule_json(step.schedule).c_str());
    } else if (options.format == "csv") {
        std::printf("%s", print_schedule_csv(step.schedule, CsvDialect::automatic).c_str());
    } else {
        print_grid(options, step);
    }
}

}  // namespace

Command schedule_show_command() {
    const auto o = std::make_shared<ShowArguments>();
    return {.name = "show",
            .description = "Show a schedule in the terminal, or print it as CSV or JSON",
            .flags = {{.flags = {schedule_argument(
                           o->name, "Name from `schedule list`, or a .csv or .json file")}},
                      schedule_source_flags(o->flags),
                      {.flags = {{.names = "--format",
                                  .value = &o->format,
                                  .help = "Output format: grid, csv or json",
                                  .choices = {"grid", "csv", "json"}},
                                 {.names = "--width",
                                  .value = &o->width,
                                  .help = "Characters per line of the grid",
                                  .range = between(40, 1000000),
                                  .unset = "terminal width"}}}},
            .run = [o](const GivenFlags&) { show_schedule(*o); }};
}

}  // namespace vocabpipe::tool

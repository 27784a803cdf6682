// SPDX-License-Identifier: Apache-2.0
// vocabpipe schedule show: a schedule by name or from a file, as a time grid, CSV or JSON.
#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "src/tool/commands.hpp"
#include "src/tool/schedule_files.hpp"
#include "src/tool/time_grid.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/generate.hpp"
#include "vocabpipe/insert_vocabulary.hpp"
#include "vocabpipe/pass_times.hpp"
#include "vocabpipe/profile.hpp"

namespace vocabpipe::tool {

namespace {

struct Options {
    std::string name;
    int ranks = 0, microbatches = 0, chunks = 0;  // 0: not given
    std::string vocab_mode;                       // empty: not given
    int64_t vocab_size = 32000;                   // Llama 2; only JSON and CSV show rows
    std::string costs = "1,2";                    // backward = 2 forward
    int memory_limit = 0, group_size = 0, warm_up_depth = 0;
    std::string format = "grid";
    std::string dialect = "new";
    int width = 0;  // 0: the terminal's
};

/// Costs, and how to print their unit.
struct Costs {
    PassCosts passes;
    double ticks_per_unit = 1;
    std::string unit;     ///< behind numbers, such as " ms"
    std::string comment;  ///< where they are from
};

std::string number(double value, int digits) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    std::string result = text;
    if (result.find('.') != std::string::npos) {
        while (result.back() == '0') result.pop_back();
        if (result.back() == '.') result.pop_back();
    }
    return result;
}

std::string time_text(const Costs& costs, int64_t ticks) {
    return number(static_cast<double>(ticks) / costs.ticks_per_unit, 2);
}

/// Two whole numbers F,B; none for anything else.
std::optional<std::pair<int64_t, int64_t>> ratio_from(const std::string& text) {
    int64_t forward = 0;
    int64_t backward = 0;
    const char* end = text.data() + text.size();
    const auto first = std::from_chars(text.data(), end, forward);
    if (first.ec != std::errc{} || first.ptr == end || *first.ptr != ',') return std::nullopt;
    const auto second = std::from_chars(first.ptr + 1, end, backward);
    if (second.ec != std::errc{} || second.ptr != end) return std::nullopt;
    return std::pair{forward, backward};
}

Costs costs_from_ratio(const std::string& text, std::pair<int64_t, int64_t> ratio) {
    constexpr int64_t kMost = 1'000'000'000;
    const auto [forward, backward] = ratio;
    if (forward < 1 || backward < 1 || forward > kMost || backward > kMost) {
        throw UsageError("--costs " + text + ": F and B must be from 1 to " +
                         std::to_string(kMost));
    }
    // Twelfths of the unit: a third of F for S and T and a twelfth for E and G stay whole.
    constexpr int64_t kParts = 12;
    Costs costs;
    costs.passes = PassCosts::uniform(kParts * forward, kParts * backward, kParts / 3 * forward);
    costs.ticks_per_unit = static_cast<double>(kParts);
    costs.comment = "F " + std::to_string(forward) + ", B " + std::to_string(backward) +
                    ", I and W half of B, S and T a third of F, E and G a twelfth; messages are "
                    "free";
    return costs;
}

Costs costs_from_profile(const std::string& path, int ranks, int stages) {
    const Profile profile = read_profile(path);
    if (profile.ranks() != ranks || profile.stages() != stages) {
        throw UsageError("--costs " + path + ": was measured with " +
                         std::to_string(profile.ranks()) + " ranks and " +
                         std::to_string(profile.stages()) + " stages, the schedule has " +
                         std::to_string(ranks) + " and " + std::to_string(stages));
    }
    Schedule measured;
    measured.ranks = ranks;
    measured.stages = stages;
    measured.rank_of_stage = profile.rank_of_stage;
    measured.input = profile.input;
    measured.output = profile.output;
    Costs costs;
    costs.passes = PassCosts::of(profile.costs, profile.sizes, measured);
    const bool short_passes = costs.passes.mean(Op::F) < 1'000'000;
    costs.ticks_per_unit = short_passes ? 1e3 : 1e6;
    costs.unit = short_passes ? " us" : " ms";
    costs.comment = "measured, " + path;
    return costs;
}

Costs costs_for(const Options& options, int ranks, int stages) {
    if (const auto ratio = ratio_from(options.costs)) {
        return costs_from_ratio(options.costs, *ratio);
    }
    if (options.costs.find(',') != std::string::npos) {
        throw UsageError("--costs " + options.costs +
                         ": must be two whole numbers F,B such as 1,2, or a profile file");
    }
    return costs_from_profile(options.costs, ranks, stages);
}

struct Shown {
    Schedule schedule;
    Costs costs;
    std::string title;
};

Shown from_file(const Options& options) {
    const auto refuse = [&](const char* flag, bool given) {
        if (given) {
            throw UsageError(std::string(flag) + ": is for schedules by name; " + options.name +
                             " is a file");
        }
    };
    refuse("--chunks", options.chunks != 0);
    refuse("--memory-limit", options.memory_limit != 0);
    refuse("--group-size", options.group_size != 0);
    refuse("--warm-up-depth", options.warm_up_depth != 0);
    Shown shown{
        .schedule = read_schedule_file(
            options.name, {.dialect = csv_dialect_from(options.dialect), .ranks = options.ranks}),
        .costs = {},
        .title = options.name};
    Schedule& schedule = shown.schedule;
    if (options.microbatches != 0 && options.microbatches != schedule.microbatches) {
        throw UsageError("--microbatches " + std::to_string(options.microbatches) + ": " +
                         options.name + " has " + std::to_string(schedule.microbatches));
    }
    shown.costs = costs_for(options, schedule.ranks, schedule.stages);
    if (options.vocab_mode.empty()) return shown;
    if (schedule.input.vocab_size() > 0 || schedule.output.vocab_size() > 0) {
        throw UsageError("--vocab-mode " + options.vocab_mode + ": " + options.name +
                         " has vocabulary passes of its own");
    }
    const VocabMode mode = vocab_mode_from(options.vocab_mode);
    if (options.vocab_size < 1 || options.vocab_size > int64_t{1} << 40) {
        throw UsageError("--vocab-size " + std::to_string(options.vocab_size) +
                         ": must be from 1 to 2^40");
    }
    schedule = insert_vocabulary(
        schedule, {.mode = mode, .vocab_size = options.vocab_size, .costs = shown.costs.passes});
    shown.title += ", vocab mode " + std::string(to_string(mode));
    return shown;
}

Shown by_name(const Options& options) {
    const Generator& family = generator(options.name);
    for (const auto& [flag, value] :
         {std::pair{"--pp", options.ranks}, std::pair{"--microbatches", options.microbatches}}) {
        if (value < 1) {
            throw UsageError(std::string(flag) + (value == 0 ? "" : " " + std::to_string(value)) +
                             ": give at least 1");
        }
    }
    const int chunks = options.chunks == 0 ? family.chunks : options.chunks;
    if (chunks < 1 || int64_t{options.ranks} * chunks > 65535) {
        throw UsageError("--pp " + std::to_string(options.ranks) + " with --chunks " +
                         std::to_string(chunks) +
                         ": both must be at least 1 and make at most 65535 stages");
    }
    const VocabMode mode =
        options.vocab_mode.empty() ? VocabMode::none : vocab_mode_from(options.vocab_mode);
    Shown shown{.schedule = {},
                .costs = costs_for(options, options.ranks, options.ranks * chunks),
                .title = options.name + ", vocab mode " + std::string(to_string(mode))};
    shown.schedule = generate(options.name, {.ranks = options.ranks,
                                             .microbatches = options.microbatches,
                                             .vocab_mode = mode,
                                             .vocab_size = options.vocab_size,
                                             .chunks = options.chunks,
                                             .warm_up_depth = options.warm_up_depth,
                                             .group_size = options.group_size,
                                             .memory_limit = options.memory_limit,
                                             .costs = shown.costs.passes});
    return shown;
}

int terminal_width() {
    constexpr int kWithoutTerminal = 120;
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kWithoutTerminal;
    return size.ws_col;
}

bool wants_colour() {
    const char* refused = std::getenv("NO_COLOR");  // https://no-color.org
    const char* terminal = std::getenv("TERM");
    return ::isatty(STDOUT_FILENO) == 1 && (refused == nullptr || *refused == '\0') &&
           (terminal == nullptr || std::string_view(terminal) != "dumb");
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

void print_ranks(const Schedule& schedule, const PassTimes& times, const Costs& costs) {
    const std::vector<int> peaks = peak_chunks(schedule);
    std::vector<std::string> stages;
    size_t width = 6;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        stages.push_back(stages_of(schedule, rank));
        width = std::max(width, stages.back().size());
    }
    std::printf("rank  %-*s  %10s  %10s  %8s  peak chunks\n", static_cast<int>(width), "stages",
                "busy", "idle", "bubble");
    double bubbles = 0;
    for (size_t rank = 0; rank < stages.size(); ++rank) {
        const int64_t idle = times.makespan - times.busy[rank];
        const double bubble = times.makespan == 0 ? 0
                                                  : 100 * static_cast<double>(idle) /
                                                        static_cast<double>(times.makespan);
        bubbles += bubble;
        std::printf("%4zu  %-*s  %10s  %10s  %6.1f %%  %d\n", rank, static_cast<int>(width),
                    stages[rank].c_str(), time_text(costs, times.busy[rank]).c_str(),
                    time_text(costs, idle).c_str(), bubble, peaks[rank]);
    }
    std::printf("makespan %s%s, longest span of a rank %s%s, bubble %.1f %% (mean over ranks)\n",
                time_text(costs, times.makespan).c_str(), costs.unit.c_str(),
                time_text(costs, times.largest_span).c_str(), costs.unit.c_str(),
                bubbles / static_cast<double>(stages.size()));
}

void print_grid(const Shown& shown, int width) {
    const Schedule& schedule = shown.schedule;
    const PassTimes times = time_passes(schedule, shown.costs.passes);
    std::printf("%s: %d ranks, %d stages, %d microbatches\n", shown.title.c_str(), schedule.ranks,
                schedule.stages, schedule.microbatches);
    std::printf("costs: %s\n\n", shown.costs.comment.c_str());
    const std::string grid =
        time_grid(schedule, times,
                  {.width = width > 0 ? width : terminal_width(),
                   .colour = wants_colour(),
                   .ticks_per_unit = static_cast<int64_t>(shown.costs.ticks_per_unit),
                   .time_text = [&](int64_t ticks) { return time_text(shown.costs, ticks); }});
    std::printf("%s\n", grid.c_str());
    print_ranks(schedule, times, shown.costs);
}

void show(const Options& options) {
    const Shown shown = names_schedule_file(options.name) ? from_file(options) : by_name(options);
    if (options.format == "json") {
        std::printf("%s", print_schedule_json(shown.schedule).c_str());
    } else if (options.format == "csv") {
        std::printf("%s", print_schedule_csv(shown.schedule, CsvDialect::automatic).c_str());
    } else {
        print_grid(shown, options.width);
    }
}

}  // namespace

void add_schedule_show(CLI::App& schedule) {
    CLI::App* command = schedule.add_subcommand(
        "show", "Show a schedule in the terminal, or print it as CSV or JSON");
    auto o = std::make_shared<Options>();
    command
        ->add_option("NAME", o->name, "A name that `schedule list` shows, or a .csv or .json file")
        ->required();
    command->add_option("--pp", o->ranks, "Ranks");
    command->add_option("--microbatches", o->microbatches, "Microbatches per step");
    command->add_option("--chunks", o->chunks, "Stages per rank (default: the schedule's own)");
    command->add_option("--vocab-mode", o->vocab_mode,
                        "none, redistributed, interlaced, one_barrier or two_barriers (default: "
                        "none; a file's own passes)");
    command->add_option("--vocab-size", o->vocab_size, "Rows of the vocabulary")
        ->capture_default_str();
    command
        ->add_option("--costs", o->costs,
                     "Forward and backward time of a stage F,B, or a profile file")
        ->capture_default_str();
    command->add_option("--memory-limit", o->memory_limit,
                        "Most chunks alive on a rank, for schedules that trade memory for bubble");
    command->add_option("--group-size", o->group_size,
                        "Microbatches per group of interleaved schedules (default: the ranks)");
    command->add_option("--warm-up-depth", o->warm_up_depth, "Depth of 1f1b's warm-up");
    command->add_option("--format", o->format, "grid, csv or json")
        ->check(CLI::IsMember({"grid", "csv", "json"}))
        ->capture_default_str();
    command
        ->add_option("--dialect", o->dialect,
                     "Letters of a PyTorch CSV: new, old, or auto (by its content)")
        ->capture_default_str();
    command->add_option("--width", o->width, "Characters per line of the grid (default: terminal)")
        ->check(CLI::Range(40, 1000000));
    command->callback([o] { show(*o); });
}

}  // namespace vocabpipe::tool

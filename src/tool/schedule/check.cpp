// SPDX-License-Identifier: Apache-2.0
// vocabpipe schedule check: proves that a schedule file runs without deadlock, or says why not.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "src/support/text_layout.hpp"
#include "src/tool/schedule/schedule_files.hpp"
#include "src/tool/schedule/scheduled_step.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/long_work.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/schedule_file.hpp"

namespace vocabpipe::tool {

namespace {

struct CheckArguments {
    std::string path;
    CsvDialect dialect = CsvDialect::current;
    int ranks = 0;
};

/// Sizes do not matter for the proof; one token per rank gives every reduction its blocks.
StepSizes small_sizes(const Schedule& schedule) {
    StepSizes sizes{.tokens = schedule.ranks, .hidden = 1};
    sizes.stages.resize(static_cast<size_t>(schedule.stages));
    sizes.shards.resize(static_cast<size_t>(schedule.ranks));
    return sizes;
}

void check_schedule(const CheckArguments& options) {
    std::optional<LongWork> work(std::in_place, "checking " + options.path);
    const Schedule file = read_schedule_file(
        options.path, {.dialect = options.dialect, .ranks = options.ranks});  // validates
    size_t passes = 0;
    for (const auto& list : file.passes) passes += list.size();
    if (passes > static_cast<size_t>(kMostPassesToLower)) {
        throw InputFileError(options.path + ": has " + std::to_string(passes) +
                             " passes, but at most " + std::to_string(kMostPassesToLower) +
                             " can be checked; use fewer microbatches");
    }
    const Schedule schedule = with_vocabulary(file);
    const auto costs = TableCosts::uniform(schedule.ranks, schedule.stages, 12, 24, 4);
    const auto programs = lower(schedule, small_sizes(schedule), costs);
    if (const auto deadlock = find_deadlock(programs)) {
        throw InputFileError(options.path + ": " + *deadlock);
    }
    size_t actions = 0;
    for (const Program& program : programs) actions += program.actions.size();
    work.reset();
    const std::string found = options.path + ": valid: " + counted(file.ranks, "rank") + ", " +
                              counted(file.stages, "stage") + ", " +
                              counted(file.microbatches, "microbatch", "microbatches") + ", " +
                              counted(static_cast<int64_t>(passes), "pass", "passes") +
                              (file.forward_only() ? ", forward only" : "");
    std::printf("%s\n", wrap_text(found).c_str());
    std::printf(
        "%s\n",
        wrap_text("lowered to " + counted(static_cast<int64_t>(actions), "action") +
                  (file.output.vocab_size() == 0 ? ", with whole vocabulary layers added" : "") +
                  "; proven free of deadlock")
            .c_str());
}

}  // namespace

Command schedule_check_command() {
    const auto o = std::make_shared<CheckArguments>();
    return {.name = "check",
            .description = "Prove that a schedule file can run, or report why it cannot",
            .flags = {{.flags = {{.names = "FILE", .value = &o->path, .help = ".csv or .json file"},
                                 dialect_flag(o->dialect, "Pass letters of a PyTorch CSV"),
                                 {.names = "--pp",
                                  .value = &o->ranks,
                                  .help = "Number of ranks that the file must have",
                                  .range = at_least(1),
                                  .absent = 0}}}},
            .run = [o](const GivenFlags&) { check_schedule(*o); }};
}

}  // namespace vocabpipe::tool

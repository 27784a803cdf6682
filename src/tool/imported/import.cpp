// SPDX-License-Identifier: Apache-2.0
// vocabpipe import: a timeline and pass times from files of other trainers' profilers.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "src/imported/megatron_timers.hpp"
#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/imported/run_files.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/quantity.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

struct ImportArguments {
    std::vector<std::string> files;
    ImportFlags flags;
    std::string trace, pass_times;
};

/// A log of Megatron-LM has sums of pass times, and no timeline. False: there is no such log.
bool write_megatron_times(const ImportArguments& options) {
    const std::string& path = options.files.front();
    if (options.files.size() > 1 || is_imported_run(path)) return false;
    const std::string text = read_imported_text(path);
    if (!imported::is_megatron_log(text)) return false;
    if (!options.trace.empty()) {
        throw UsageError("--trace " + options.trace + ": " + path +
                         " has sums of times and no timeline; use --pass-times alone");
    }
    if (options.flags.microbatches == 0) {
        throw UsageError("--microbatches: is required, because timers of " + path +
                         " add up all microbatches of an iteration");
    }
    const std::string rows = imported::megatron_pass_times(text, path, options.flags.microbatches);
    OutputFile file(options.pass_times);
    file.write(rows);
    file.publish();
    std::printf("pass times of %s, from Megatron-LM's timers\n",
                counted(std::ranges::count(rows, '\n') / 2, "rank").c_str());
    return true;
}

void import_run(const ImportArguments& options) {
    if (options.trace.empty() && options.pass_times.empty()) {
        throw UsageError("import: requires an output; add --trace FILE or --pass-times FILE");
    }
    OutputCheck check(options.files);
    if (!options.trace.empty()) check.add("--trace", options.trace, trace_output());
    if (!options.pass_times.empty()) {
        check.add("--pass-times", options.pass_times, pass_times_output());
    }
    if (write_megatron_times(options)) return;
    const imported::MeasuredRun run = read_imported_run(options.files, options.flags);
    const RecordedRun recorded = imported_step(run, options.flags);
    if (!options.trace.empty()) write_chrome_trace(options.trace, recorded);
    if (!options.pass_times.empty()) {
        OutputFile file(options.pass_times);
        file.write(imported::pass_times_csv(run));
        file.publish();
    }
    std::printf("%s\n", wrap_text(recorded.title, 2).c_str());
    std::printf("%s, %s, %s, %s\n", counted(run.ranks(), "rank").c_str(),
                counted(run.stages, "stage").c_str(),
                counted(run.microbatches, "microbatch", "microbatches").c_str(),
                counted(static_cast<int64_t>(run.steps.size()), "step").c_str());
    if (run.left_out > 0) {
        std::printf("%s left out, because they lack passes\n",
                    counted(run.left_out, "step").c_str());
    }
    std::printf("makespan %s\n", time_text(summarize(recorded).makespan_ns, 0).c_str());
}

}  // namespace

Command import_command() {
    const auto o = std::make_shared<ImportArguments>();
    return {
        .name = "import",
        .description = "Make a timeline and pass times from what other trainers' profilers wrote",
        .flags =
            {{.flags =
                  {{.names = "FILES",
                    .value = &o->files,
                    .help =
                        "Traces of torch.profiler, one of every rank; spans of "
                        "OpenTelemetry (OTLP JSON); what nsys export (SQLite) or nsys stats (CSV) "
                        "wrote; a table of operations as StragglerAnalysis published it (CSV); a "
                        "log of Megatron-LM with timers of all ranks"}}},
             import_flags(o->flags),
             {.flags = {{.names = "--trace",
                         .value = &o->trace,
                         .help = "Write the step as a Chrome trace, for timeline and "
                                 "explain"},
                        {.names = "--pass-times",
                         .value = &o->pass_times,
                         .help = "Write the times of passes as CSV, for --pass-times of "
                                 "simulate and plan"}}}},
        .run = [o](const GivenFlags&) { import_run(*o); }};
}

}  // namespace vocabpipe::tool

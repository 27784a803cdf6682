// SPDX-License-Identifier: Apache-2.0
// vocabpipe schedule convert: converts schedules between CSV dialects and JSON.
#include <cstdint>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "src/support/names_of.hpp"
#include "src/support/output_check.hpp"
#include "src/support/text_layout.hpp"
#include "src/tool/schedule/schedule_files.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/long_work.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

struct ScheduleConvertArguments {
    std::string from, to;
    CsvDialect dialect = CsvDialect::current;
    CsvDialect output_dialect = CsvDialect::automatic;
};

/// Any file that can be read as a schedule may be replaced by one.
OutputKind schedule_output() {
    return {"a schedule", [](const std::string& path) {
                try {
                    (void)read_schedule(path, {.dialect = CsvDialect::automatic});
                    return true;
                } catch (const Error&) {
                    return false;
                }
            }};
}

void convert_schedule(const ScheduleConvertArguments& options) {
    const ScheduleFormat format = schedule_format_of(options.to);
    std::optional<LongWork> work(std::in_place, "converting " + options.from);
    const Schedule schedule = read_schedule_file(options.from, {.dialect = options.dialect});
    OutputCheck({options.from}).add("OUT", options.to, schedule_output());
    write_schedule(options.to, schedule, options.output_dialect);
    work.reset();
    int64_t passes = 0;
    for (const auto& list : schedule.passes) passes += std::ssize(list);
    std::cout << options.to << ": " << counted(std::ssize(schedule.passes), "rank") << ", "
              << counted(passes, "pass", "passes") << "\n";
    if (format == ScheduleFormat::csv && schedule.output.vocab_size() > 0 &&
        csv_dialect_of(schedule, options.output_dialect) != CsvDialect::vocabpipe) {
        std::cerr << "vocabpipe: note: " + options.to +
                         ": omits the passes of whole vocabulary layers, because PyTorch's first "
                         "and last stages contain them; --output-dialect vocabpipe keeps them\n";
    }
}

}  // namespace

Command schedule_convert_command() {
    const auto o = std::make_shared<ScheduleConvertArguments>();
    return {
        .name = "convert",
        .description = "Convert a schedule file between CSV and JSON",
        .flags =
            {{.flags =
                  {{.names = "IN", .value = &o->from, .help = ".csv or .json file to read"},
                   {.names = "OUT", .value = &o->to, .help = ".csv or .json file to write"},
                   dialect_flag(o->dialect, "Pass letters of a PyTorch CSV to read"),
                   {.names = "--output-dialect",
                    .value = named(&o->output_dialect, csv_dialect_from),
                    .help =
                        "Pass letters of the CSV to write: new, old, lowered (new, with PyTorch's "
                        "communication cells), vocabpipe (keeps E, G, S, T, R), or auto: vocabpipe "
                        "if vocabulary layers are sharded or the schedule has R, else new",
                    .choices =
                        names_of({CsvDialect::automatic, CsvDialect::current, CsvDialect::old,
                                  CsvDialect::vocabpipe, CsvDialect::lowered})}}}},
        .run = [o](const GivenFlags&) { convert_schedule(*o); }};
}

}  // namespace vocabpipe::tool

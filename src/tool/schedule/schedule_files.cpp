// SPDX-License-Identifier: Apache-2.0
#include "src/tool/schedule/schedule_files.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>
#include <vector>

#include "src/support/names_of.hpp"
#include "src/support/nearest_name.hpp"
#include "src/support/output_check.hpp"
#include "src/support/read_whole_file.hpp"
#include "src/tool/support/text.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/insert_vocabulary.hpp"
#include "vocabpipe/make_schedule.hpp"

namespace vocabpipe::tool {

namespace {

/// InputFileError for JSON of another kind, naming the kind: an error about missing keys of a
/// schedule would not help.
void refuse_other_json(const std::string& path) {
    const std::string text = read_whole_file(path, "use a .csv or .json file");
    if (text.find("\"format\"") != std::string::npos || !text.starts_with('{')) return;
    for (const auto& [kind, reader] :
         {std::pair{report_output(),
                    "vocabpipe compare reads it, and vocabpipe timeline draws the "
                    "traces of train_gpt --trace-dir"},
          std::pair{profile_output(), "--costs reads it"},
          std::pair{trace_output(), "vocabpipe timeline and explain read it"}}) {
        if (kind.is_one(path)) {
            throw InputFileError(path + ": is " + std::string(kind.name) + ", not a schedule; " +
                                 reader);
        }
    }
    throw InputFileError(path +
                         ": is not a schedule (no \"format\": \"vocabpipe schedule\"); vocabpipe "
                         "schedule show --format json prints one");
}

}  // namespace

bool names_schedule_file(std::string_view name) {
    return name.ends_with(".csv") || name.ends_with(".json") ||
           name.find('/') != std::string_view::npos;
}

void check_schedule_name(const std::string& name) {
    std::vector<std::string_view> known;
    for (const Generator& family : generators()) known.push_back(family.name);
    if (std::ranges::find(known, name) != known.end()) return;
    std::error_code ignored;
    if (std::filesystem::is_regular_file(name, ignored)) {
        throw UsageError("SCHEDULE " + name +
                         ": is a file, but its name does not end in .csv or .json");
    }
    if (name == "dualpipe") static_cast<void>(generator(name));  // its error names the replacement
    throw UsageError("SCHEDULE " + name +
                     ": is neither the name of a schedule (see vocabpipe schedule list) nor a .csv "
                     "or .json file" +
                     did_you_mean(name, known));
}

Schedule read_schedule_file(const std::string& path, const ReadScheduleOptions& options) {
    if (path.ends_with(".json")) refuse_other_json(path);
    ScheduleFile file = read_schedule(path, options);
    for (const std::string& note : file.notes) {
        std::cerr << "vocabpipe: note: " + short_line(note) + "\n";
    }
    return std::move(file.schedule);
}

Flag dialect_flag(CsvDialect& dialect, const std::string& letters) {
    return {
        .names = "--dialect",
        .value = named(&dialect, csv_dialect_from),
        .help = letters + ": new, old, or auto (detected)",
        .choices = names_of({CsvDialect::automatic, CsvDialect::current, CsvDialect::old}),
    };
}

Schedule with_vocabulary(const Schedule& schedule) {
    if (schedule.input.vocab_size() > 0 || schedule.output.vocab_size() > 0) return schedule;
    return insert_vocabulary(schedule, {.mode = VocabMode::none, .vocab_size = 1});
}

}  // namespace vocabpipe::tool

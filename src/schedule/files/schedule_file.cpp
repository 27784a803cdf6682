// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/schedule_file.hpp"

#include "src/support/names_of.hpp"
#include "src/support/output_file.hpp"
#include "src/support/read_whole_file.hpp"
#include "vocabpipe/error.hpp"

#include <array>

namespace vocabpipe {

namespace {

constexpr std::array<std::string_view, 5> kDialects{"auto", "new", "old", "vocabpipe", "lowered"};
}  // namespace

std::string_view to_string(CsvDialect dialect) {
    return kDialects[static_cast<size_t>(dialect)];
}

CsvDialect csv_dialect_from(std::string_view name) {
    return value_named("dialect", name,
                       {CsvDialect::automatic, CsvDialect::current, CsvDialect::old,
                        CsvDialect::vocabpipe, CsvDialect::lowered});
}

ScheduleFormat schedule_format_of(std::string_view path) {
    if (path.ends_with(".csv")) return ScheduleFormat::csv;
    if (path.ends_with(".json")) return ScheduleFormat::json;
    throw UsageError(std::string(path) + ": the name of a schedule file must end in .csv or .json");
}

ScheduleFile read_schedule(const std::string& path, const ReadScheduleOptions& options) {
    const ScheduleFormat format = schedule_format_of(path);
    const std::string text = read_whole_file(path, "use a .csv or .json file");
    return format == ScheduleFormat::csv ? parse_schedule_csv(text, path, options)
                                         : parse_schedule_json(text, path, options);
}

void write_schedule(const std::string& path, const Schedule& schedule, CsvDialect dialect) {
    const std::string text = schedule_format_of(path) == ScheduleFormat::csv
                                 ? print_schedule_csv(schedule, dialect)
                                 : print_schedule_json(schedule);
    OutputFile file(path);
    file.write(text);
    file.publish();
}

}  // namespace vocabpipe

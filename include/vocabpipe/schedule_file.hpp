// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Letters of a schedule CSV (docs/user-defined-schedules.md, "PyTorch CSV files").
enum class CsvDialect : uint8_t {
    automatic,  ///< new or old, by what the file contains; "auto"
    current,    ///< PyTorch's: I input gradient, B full backward; "new"
    old,        ///< before PyTorch's renaming: B input gradient, BW full backward; "old"
    vocabpipe,  ///< PyTorch's with E, G, S, T and a first row that names it; "vocabpipe"
    lowered,    ///< PyTorch's new one, written with its communication; read as that; "lowered"
};

[[nodiscard]] std::string_view to_string(CsvDialect dialect);
/// Throws UsageError naming the dialects and the nearest one.
[[nodiscard]] CsvDialect csv_dialect_from(std::string_view name);

enum class ScheduleFormat : uint8_t { csv, json };

/// By the end of the name, .csv or .json. Throws UsageError otherwise.
[[nodiscard]] ScheduleFormat schedule_format_of(std::string_view path);

/// What a file does not say about itself.
struct ReadScheduleOptions {
    /// Of a CSV that does not name its dialect. Not automatic: a faulty new file in which a
    /// microbatch has B and W would pass as an old one.
    CsvDialect dialect = CsvDialect::current;
    int ranks = 0;  ///< refuse files for another number; 0: as many as the file has
};

/// What a file holds.
struct ScheduleFile {
    Schedule schedule;               ///< valid
    std::vector<std::string> notes;  ///< what was chosen or left out, one line each
};

/// Reads a .csv or .json file. Throws InputFileError with file, row and cell (CSV) or JSON path,
/// the value and the remedy: for what cannot be read, and for schedules that cannot run.
[[nodiscard]] ScheduleFile read_schedule(const std::string& path,
                                         const ReadScheduleOptions& options = {});

/// The same of text in memory; `name` stands for the file in messages. Lowered PyTorch files
/// (SEND, RECV, WAIT_SEND, UNSHARD, RESHARD, REDUCE_GRAD, WAIT_REDUCE_GRAD) are checked, and those
/// cells are left out with a note: lower() infers communication again.
[[nodiscard]] ScheduleFile parse_schedule_csv(std::string_view text, const std::string& name,
                                              const ReadScheduleOptions& options = {});
[[nodiscard]] ScheduleFile parse_schedule_json(std::string_view text, const std::string& name,
                                               const ReadScheduleOptions& options = {});

/// One row per rank, CR LF, passes only; `lowered` adds the cells that PyTorch 2.15 adds when it
/// lowers a schedule with its defaults, in the same places. PyTorch's dialects leave out the passes
/// of vocabulary layers that are whole on the ranks of the first and last stage, which contain them
/// there; they throw UsageError for sharded ones, and the old one for overlapped pairs. `automatic`
/// is PyTorch's where it can say everything that matters, else vocabpipe.
[[nodiscard]] std::string print_schedule_csv(const Schedule& schedule, CsvDialect dialect);
/// The dialect that print_schedule_csv() writes: what automatic stands for, any other one itself.
[[nodiscard]] CsvDialect csv_dialect_of(const Schedule& schedule, CsvDialect dialect);
/// Complete and versioned: parse_schedule_json() returns the same schedule.
[[nodiscard]] std::string print_schedule_json(const Schedule& schedule);

/// Writes a .csv or .json file, which appears under its name only when complete. Throws UsageError
/// as above, OutputFileError for a file that cannot be written.
void write_schedule(const std::string& path, const Schedule& schedule,
                    CsvDialect dialect = CsvDialect::automatic);

}  // namespace vocabpipe

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
    automatic,  ///< new or old, detected from the file's contents; "auto"
    current,    ///< PyTorch's: I input gradient, B full backward; "new"
    old,        ///< before PyTorch's renaming: B input gradient, BW full backward; "old"
    vocabpipe,  ///< PyTorch's with E, G, S, T and a first row that names the dialect; "vocabpipe"
    lowered,    ///< `current` with its communication when written; read as `current`; "lowered"
};

[[nodiscard]] std::string_view to_string(CsvDialect dialect);
/// Throws UsageError naming the dialects and the nearest one.
[[nodiscard]] CsvDialect csv_dialect_from(std::string_view name);

enum class ScheduleFormat : uint8_t { csv, json };

/// The format by the end of the name, .csv or .json. Throws UsageError otherwise.
[[nodiscard]] ScheduleFormat schedule_format_of(std::string_view path);

/// Information that a file does not contain.
struct ReadScheduleOptions {
    /// Dialect of a CSV that does not name it. The default is not automatic, because a faulty new
    /// file in which a microbatch has B and W would pass as an old one.
    CsvDialect dialect = CsvDialect::current;
    int ranks = 0;  ///< refuses files with another number; 0: accepts any
};

/// Contents of a file.
struct ScheduleFile {
    Schedule schedule;               ///< valid
    std::vector<std::string> notes;  ///< choices made and cells left out, one line each
};

/// Reads a .csv or .json file. Throws InputFileError with file, row and cell (CSV) or JSON path,
/// the value and the remedy, if the file cannot be read or its schedule cannot run.
[[nodiscard]] ScheduleFile read_schedule(const std::string& path,
                                         const ReadScheduleOptions& options = {});

/// The same from text in memory; `name` stands for the file in messages. Lowered PyTorch files
/// (SEND, RECV, WAIT_SEND, UNSHARD, RESHARD, REDUCE_GRAD, WAIT_REDUCE_GRAD) are checked, and those
/// cells are left out with a note: lower() infers communication again.
[[nodiscard]] ScheduleFile parse_schedule_csv(std::string_view text, const std::string& name,
                                              const ReadScheduleOptions& options = {});
[[nodiscard]] ScheduleFile parse_schedule_json(std::string_view text, const std::string& name,
                                               const ReadScheduleOptions& options = {});

/// One row per rank, CR LF, passes only; `lowered` adds the cells that PyTorch 2.15 adds when it
/// lowers a schedule with its defaults, in the same places. PyTorch's dialects leave out the passes
/// of vocabulary layers that are whole on the ranks of the first and last stage, because in PyTorch
/// these stages contain them; they throw UsageError for sharded ones, and `old` also for overlapped
/// pairs. `automatic` is `current` where that can express the schedule, else vocabpipe.
[[nodiscard]] std::string print_schedule_csv(const Schedule& schedule, CsvDialect dialect);
/// The dialect that print_schedule_csv() writes: for automatic the one it chooses, else `dialect`.
[[nodiscard]] CsvDialect csv_dialect_of(const Schedule& schedule, CsvDialect dialect);
/// The schedule as versioned JSON, from which parse_schedule_json() returns the same schedule.
[[nodiscard]] std::string print_schedule_json(const Schedule& schedule);

/// Writes a .csv or .json file, which appears under its name only when complete. Throws UsageError
/// as above, OutputFileError for a file that cannot be written.
void write_schedule(const std::string& path, const Schedule& schedule,
                    CsvDialect dialect = CsvDialect::automatic);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "src/support/flag.hpp"
#include "vocabpipe/schedule_file.hpp"

namespace vocabpipe::tool {

/// Whether a schedule's name is a file's: it ends in .csv or .json, or has a folder.
[[nodiscard]] bool names_schedule_file(std::string_view name);

/// UsageError, with the nearest name, unless there is a built-in schedule of that name.
void check_schedule_name(const std::string& name);

/// read_schedule(), with notes printed to stderr.
[[nodiscard]] Schedule read_schedule_file(const std::string& path,
                                          const ReadScheduleOptions& options);

/// --dialect, the dialect of a file to read; `letters`: beginning of its help.
[[nodiscard]] Flag dialect_flag(CsvDialect& dialect, const std::string& letters);

/// Adds whole vocabulary layers, as in VocabMode::none, to a schedule that has only transformer
/// passes; returns others unchanged.
[[nodiscard]] Schedule with_vocabulary(const Schedule& schedule);

}  // namespace vocabpipe::tool

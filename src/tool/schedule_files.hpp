// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "src/support/flag.hpp"
#include "vocabpipe/schedule_file.hpp"

namespace vocabpipe::tool {

/// Whether a schedule's name is that of a file: it ends in .csv or .json, or has a folder.
[[nodiscard]] bool names_schedule_file(std::string_view name);

/// Throws UsageError, with the nearest name, unless a built-in schedule is called so.
void check_schedule_name(const std::string& name);

/// read_schedule(), with its notes on stderr.
[[nodiscard]] Schedule read_schedule_file(const std::string& path,
                                          const ReadScheduleOptions& options);

/// --dialect, that of a file to read; `letters`: its help begins with them.
[[nodiscard]] Flag dialect_flag(CsvDialect& dialect, const std::string& letters);

/// A schedule of transformer passes alone, with whole vocabulary layers added as in
/// VocabMode::none; others as they are.
[[nodiscard]] Schedule with_vocabulary(const Schedule& schedule);

}  // namespace vocabpipe::tool

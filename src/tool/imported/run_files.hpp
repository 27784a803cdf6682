// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/imported/measured_run.hpp"
#include "src/support/flag.hpp"

#include <string>
#include <vector>

namespace vocabpipe::tool {

/// What tells how to read files of other trainers.
struct ImportFlags {
    std::string rules;     ///< built-in rules, or a file; empty: those of the kind of the files
    int microbatches = 0;  ///< of a step; 0: the names of ranges say it
    int step = -1;         ///< of the recorded ones, from 0; -1: the median one
    int replica = 0;       ///< of files with several; the first is in every file
};
/// Their rows, but for those that ScheduleFlags have, too (--microbatches).
[[nodiscard]] FlagGroup recorded_step_flags(ImportFlags& flags);
/// All of their rows.
[[nodiscard]] FlagGroup import_flags(ImportFlags& flags);

/// Whether a file is of another trainer, by its first bytes.
[[nodiscard]] bool is_imported_run(const std::string& path);

/// The text of a file, decompressed. InputFileError.
[[nodiscard]] std::string read_imported_text(const std::string& path);

/// The passes of a run from files, one of every rank in any order if they have their ranks, else in
/// the order of the ranks. InputFileError with file, place and remedy; UsageError for flags.
[[nodiscard]] imported::MeasuredRun read_imported_run(const std::vector<std::string>& files,
                                                      const ImportFlags& flags);

/// The step of the flags as a run for pictures and reports. UsageError if there is none such.
[[nodiscard]] RecordedRun imported_step(const imported::MeasuredRun& run, const ImportFlags& flags);

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/imported/named_range.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe::imported {

/// Whether a file is a database of SQLite, by how it begins.
[[nodiscard]] bool is_nsys_database(std::string_view head);

/// The NVTX ranges of every process in what `nsys export --type sqlite` wrote, in the order of the
/// processes' numbers, with times of the epoch. Where a process launched work on a GPU, its ranges
/// are those of that work: from the begin of the first piece that any of its threads launched
/// within the range (autograd has threads of its own) to the end of the last; ranges that launched
/// none are left out. Throws InputFileError with SQLite's message if the file is damaged or of
/// another program.
[[nodiscard]] std::vector<RankRanges> read_nsys_database(const std::string& path);

}  // namespace vocabpipe::imported

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/imported/named_range.hpp"

#include <string>
#include <string_view>

namespace vocabpipe::imported {

/// Whether the beginning of a file is that of a table of NVTX ranges of Nsight Systems.
[[nodiscard]] bool is_nsys_ranges(std::string_view head);

/// Reads the ranges that `nsys stats --report nvtx_pushpop_trace --format csv` prints of a report
/// of one rank: the columns "Start (ns)", "End (ns)" and "Name", in any place; cells may be in
/// quotes. Names of the default domain begin with a colon, which is left out. The table does not
/// say its rank. `name` stands for the file in messages. Throws InputFileError with the line.
[[nodiscard]] RankRanges read_nsys_ranges(std::string_view text, const std::string& name);

}  // namespace vocabpipe::imported

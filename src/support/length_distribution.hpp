// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "vocabpipe/length_count.hpp"

namespace vocabpipe {

/// Lengths from 1 to this, as --seq-length has.
inline constexpr int64_t kMostLength = int64_t{1} << 30;

/// Reads a CSV file of document lengths: a line "length,count", then such pairs with ascending
/// lengths. Empty lines and lines that begin with # are left out. InputFileError with file, line,
/// value and remedy for anything else, for more than 10^6 lines, and if all counts are 0.
[[nodiscard]] std::vector<LengthCount> read_length_distribution(const std::string& path);

/// Writes such a file. OutputFileError.
void write_length_distribution(const std::string& path, std::span<const LengthCount> lengths);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/schedule.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe::files {

/// The first row of a CSV in the dialect vocabpipe, which PyTorch's reader refuses:
///   vocabpipe 1,barriers one,input 0 250 500,output 0 250 500
/// Shard maps as in ShardMap::first_row.
struct CsvHeader {
    Barriers barriers = Barriers::in_line;
    std::vector<int64_t> input, output;
};

[[nodiscard]] bool is_csv_header(std::string_view line);
/// Throws CellError.
[[nodiscard]] CsvHeader parse_csv_header(std::string_view line);
[[nodiscard]] std::string print_csv_header(const Schedule& schedule);

/// in_line, one, two: also in JSON.
[[nodiscard]] std::string_view to_string(Barriers barriers);
/// Throws CellError.
[[nodiscard]] Barriers barriers_from(std::string_view name);

}  // namespace vocabpipe::files

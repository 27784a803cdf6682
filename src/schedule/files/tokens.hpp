// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/schedule_file.hpp"

#include <string>
#include <vector>

namespace vocabpipe::files {

/// The passes of a rank as cells: "2F0", "S3", "(0F3;3B1)OVERLAP_F_B". Throws UsageError for passes
/// that the dialect cannot express.
[[nodiscard]] std::vector<std::string> tokens_of(const std::vector<Pass>& list, CsvDialect dialect);

}  // namespace vocabpipe::files

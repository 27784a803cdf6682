// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace vocabpipe {

struct ExportReport {
    std::string what;  ///< "scores", "graph", "subset"
    int64_t rows = 0;
};

/// Writes a file of scores, a graph or a subset as a table for other programs (create_table()).
/// Scores have the columns id, utility, embedding and loss, or only `column`, with ids if the table
/// is Parquet. A graph's edges have src < dst and weight, each once; a subset has ids. Fixed-point
/// numbers are converted to floating point. InputFileError, UsageError, OutputFileError.
ExportReport export_table(const std::string& input, const std::string& output,
                          const std::string& column);

}  // namespace vocabpipe

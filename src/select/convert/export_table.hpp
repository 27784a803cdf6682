// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace vocabpipe {

struct ExportReport {
    std::string what;  ///< "scores", "graph", "subset"
    int64_t rows = 0;
};

/// Writes a file of scores, a graph or a subset as a table for others (create_table()). Scores are
/// columns id, utility, embedding and loss, or `column` alone, without ids where the table is no
/// Parquet; a graph's edges are src < dst and weight, each once; a subset is ids. Numbers are what
/// fixed point stands for. InputFileError, UsageError, OutputFileError.
ExportReport export_table(const std::string& input, const std::string& output,
                          const std::string& column);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
// Parquet files. Without VOCABPIPE_ENABLE_PARQUET all functions throw a UsageError that says so.
#pragma once

#include "src/select/files/edge_input.hpp"
#include "src/select/files/sample_input.hpp"
#include "src/select/files/table_output.hpp"

#include <memory>
#include <string>
#include <vector>

namespace vocabpipe {

/// Column "utility" of numbers; a column "id", if present, must count from 0.
[[nodiscard]] std::unique_ptr<UtilityInput> open_parquet_utility(const std::string& path);
/// Column "embedding" of lists of numbers, all of one length; "id" likewise.
[[nodiscard]] std::unique_ptr<EmbeddingInput> open_parquet_embedding(const std::string& path);
/// Columns "src", "dst" and "weight".
[[nodiscard]] std::unique_ptr<EdgeInput> open_parquet_edges(const std::string& path);

/// Creates a table with these columns, without compression other than Parquet's encodings.
[[nodiscard]] std::unique_ptr<TableOutput> create_parquet(const std::string& path,
                                                          const std::vector<TableColumn>& columns);

}  // namespace vocabpipe

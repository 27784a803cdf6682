// SPDX-License-Identifier: Apache-2.0
// Parquet, in builds with VOCABPIPE_ENABLE_PARQUET; all functions of other builds throw UsageError
// that says so.
#pragma once

#include "src/select/files/edge_input.hpp"
#include "src/select/files/sample_input.hpp"
#include "src/select/files/table_output.hpp"

#include <memory>
#include <string>
#include <vector>

namespace vocabpipe {

/// Column "utility" of numbers; "id", if there is one, must count from 0.
[[nodiscard]] std::unique_ptr<UtilityInput> open_parquet_utility(const std::string& path);
/// Column "embedding" of lists of numbers of one length; "id" likewise.
[[nodiscard]] std::unique_ptr<EmbeddingInput> open_parquet_embedding(const std::string& path);
/// Columns "src", "dst" and "weight".
[[nodiscard]] std::unique_ptr<EdgeInput> open_parquet_edges(const std::string& path);

/// A table of these columns; compressed no further than Parquet does by itself.
[[nodiscard]] std::unique_ptr<TableOutput> create_parquet(const std::string& path,
                                                          const std::vector<TableColumn>& columns);

}  // namespace vocabpipe

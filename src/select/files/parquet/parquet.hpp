// SPDX-License-Identifier: Apache-2.0
// Parquet, in builds with VOCABPIPE_ENABLE_PARQUET; all functions of other builds throw UsageError
// that says so.
#pragma once

#include "src/select/files/edge_input.hpp"
#include "src/select/files/sample_input.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// Column "utility" of numbers; "id", if there is one, must count from 0.
[[nodiscard]] std::unique_ptr<UtilityInput> open_parquet_utility(const std::string& path);
/// Column "embedding" of lists of numbers of one length; "id" likewise.
[[nodiscard]] std::unique_ptr<EmbeddingInput> open_parquet_embedding(const std::string& path);
/// Columns "src", "dst" and "weight".
[[nodiscard]] std::unique_ptr<EdgeInput> open_parquet_edges(const std::string& path);

/// What a table has a column of.
struct ParquetColumn {
    enum class Kind : uint8_t { integer, number, number_list };
    std::string name;
    Kind kind = Kind::number;
    int64_t width = 1;  ///< numbers of a list, fp32; others are fp64
};
/// Rows of one column: one of the three.
struct ParquetValues {
    std::span<const int64_t> integers = {};
    std::span<const double> numbers = {};
    std::span<const float> lists = {};  ///< width numbers each
};

/// Writes a table, row group after row group; it appears when it is complete.
class ParquetOutput {
public:
    virtual ~ParquetOutput() = default;
    /// The next rows: a row group. As many of every column, in the order of the columns.
    virtual void write(int64_t rows, const std::vector<ParquetValues>& columns) = 0;
    virtual void publish() = 0;
};
[[nodiscard]] std::unique_ptr<ParquetOutput> create_parquet(
    const std::string& path, const std::vector<ParquetColumn>& columns);

}  // namespace vocabpipe

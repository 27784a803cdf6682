// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// What a table has a column of.
struct TableColumn {
    enum class Kind : uint8_t { integer, number, number_list };
    std::string name;
    Kind kind = Kind::number;
    int64_t width = 1;  ///< numbers of a list, fp32; others are fp64
};
/// Rows of one column: one of the three.
struct ColumnValues {
    std::span<const int64_t> integers = {};
    std::span<const double> numbers = {};
    std::span<const float> lists = {};  ///< width numbers each
};

/// Writes a table from its first row to its last; it appears when it is complete.
/// OutputFileError.
class TableOutput {
public:
    TableOutput() = default;
    virtual ~TableOutput() = default;
    TableOutput(const TableOutput&) = delete;
    TableOutput& operator=(const TableOutput&) = delete;

    /// The next rows, of Parquet a row group. As many of every column, in the order of the columns.
    virtual void write(int64_t rows, const std::vector<ColumnValues>& columns) = 0;
    virtual void publish() = 0;
};

/// By the ending of the name: .parquet; .npy, one column, or f8 [rows, columns] without lists;
/// .txt, a line per row. UsageError for other names, and what .npy cannot hold.
[[nodiscard]] std::unique_ptr<TableOutput> create_table(const std::string& path,
                                                        const std::vector<TableColumn>& columns,
                                                        int64_t rows);

}  // namespace vocabpipe

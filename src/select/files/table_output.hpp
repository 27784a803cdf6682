// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// A column of a table.
struct TableColumn {
    enum class Kind : uint8_t { integer, number, number_list };
    std::string name;
    Kind kind = Kind::number;
    int64_t width = 1;  ///< length of a list of fp32 numbers; other numbers are fp64
};
/// Rows of one column: exactly one of the three is set.
struct ColumnValues {
    std::span<const int64_t> integers = {};
    std::span<const double> numbers = {};
    std::span<const float> lists = {};  ///< width numbers each
};

/// Writes a table front to back; it appears when it is complete. OutputFileError.
class TableOutput {
public:
    TableOutput() = default;
    virtual ~TableOutput() = default;
    TableOutput(const TableOutput&) = delete;
    TableOutput& operator=(const TableOutput&) = delete;

    /// Writes the next rows (in Parquet a row group), equally many of every column, in the order of
    /// the columns.
    virtual void write(int64_t rows, const std::vector<ColumnValues>& columns) = 0;
    virtual void publish() = 0;
};

/// By the extension: .parquet; .npy, either one column or f8 [rows, columns] without lists; .txt, a
/// line per row. UsageError for other names, and for tables that .npy cannot hold.
[[nodiscard]] std::unique_ptr<TableOutput> create_table(const std::string& path,
                                                        const std::vector<TableColumn>& columns,
                                                        int64_t rows);

}  // namespace vocabpipe

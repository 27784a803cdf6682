// SPDX-License-Identifier: Apache-2.0
// Columns of a Parquet file, read in parts; for the files that include Arrow.
#pragma once

#include "vocabpipe/error.hpp"

#include <arrow/api.h>
#include <parquet/arrow/reader.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

/// InputFileError "PATH: ..." if the status is an error.
void check_read(const arrow::Status& status, const std::string& path);
template <typename T>
[[nodiscard]] T value_read(arrow::Result<T> result, const std::string& path) {
    check_read(result.status(), path);
    return std::move(result).ValueUnsafe();
}

/// Columns of a file, by rows. Decodes a batch of rows at once, and reads pages.
class ParquetRows {
public:
    /// `columns`: at the top of the schema; InputFileError if one is missing. `optional`: read if
    /// the file has it.
    ParquetRows(const std::string& path, const std::vector<std::string>& columns,
                const std::string& optional, int64_t batch_rows);

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] int64_t rows() const { return group_begin_.back(); }

    /// Some of the requested rows: `count` rows from `offset` on in a batch; the first is row `row`
    /// of the file.
    struct Part {
        const arrow::RecordBatch& batch;
        int64_t offset, row, count;
    };
    /// Passes on the rows [first, first + count) in parts. Meant for ascending rows.
    void read(int64_t first, int64_t count, const std::function<void(const Part&)>& use);

private:
    void go_to(int64_t row);
    void next_batch();

    std::string path_;
    std::unique_ptr<parquet::arrow::FileReader> file_;
    std::vector<int> columns_;          ///< leaves of the schema
    std::vector<int64_t> group_begin_;  ///< first rows of row groups, and the number of rows
    std::unique_ptr<arrow::RecordBatchReader> batches_;
    std::shared_ptr<arrow::RecordBatch> batch_;
    int64_t batch_begin_ = 0, batch_end_ = 0;
};

}  // namespace vocabpipe

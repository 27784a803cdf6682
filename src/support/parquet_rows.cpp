// SPDX-License-Identifier: Apache-2.0
#include "src/support/parquet_rows.hpp"

#include "src/support/input_file.hpp"

#include <arrow/io/file.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <algorithm>
#include <new>
#include <numeric>

namespace vocabpipe {

namespace {

[[noreturn]] void refuse_file(const std::string& path, const std::string& why) {
    throw InputFileError(path + ": cannot be read as Parquet: " + why.substr(0, why.find('\n')));
}

std::unique_ptr<parquet::arrow::FileReader> open_parquet(const std::string& path,
                                                         int64_t batch_rows) {
    (void)InputFile(path);  // fails with a good message if there is no such file
    parquet::ReaderProperties properties;
    properties.enable_buffered_stream();  // read pages, not whole columns of a row group
    parquet::ArrowReaderProperties arrow_properties;
    arrow_properties.set_batch_size(batch_rows);
    arrow_properties.set_pre_buffer(false);
    parquet::arrow::FileReaderBuilder builder;
    check_read(builder.Open(value_read(arrow::io::ReadableFile::Open(path), path), properties),
               path);
    builder.properties(arrow_properties);
    return value_read(builder.Build(), path);
}

}  // namespace

void check_read(const arrow::Status& status, const std::string& path) {
    if (status.IsOutOfMemory()) throw std::bad_alloc();
    if (!status.ok()) refuse_file(path, status.message());
}

ParquetRows::ParquetRows(const std::string& path, const std::vector<std::string>& columns,
                         const std::string& optional, int64_t batch_rows)
    : path_(path), file_(open_parquet(path, batch_rows)), group_begin_{0} {
    try {
        const auto metadata = file_->parquet_reader()->metadata();
        for (int group = 0; group < metadata->num_row_groups(); ++group) {
            const int64_t rows = metadata->RowGroup(group)->num_rows();
            if (rows < 0) refuse_file(path, "a row group has less than 0 rows");
            group_begin_.push_back(group_begin_.back() + rows);
        }
        const parquet::SchemaDescriptor& schema = *metadata->schema();
        std::vector<std::string> wanted = columns;
        if (!optional.empty()) wanted.push_back(optional);
        for (const std::string& name : wanted) {
            const size_t before = columns_.size();
            for (int leaf = 0; leaf < schema.num_columns(); ++leaf) {
                if (schema.Column(leaf)->path()->ToDotVector().front() == name) {
                    columns_.push_back(leaf);
                }
            }
            if (columns_.size() == before && name != optional) {
                throw InputFileError(path + ": has no column \"" + name +
                                     "\"; rename the one that it is");
            }
        }
    } catch (const parquet::ParquetException& error) {
        refuse_file(path, error.what());
    }
    std::ranges::sort(columns_);
}

void ParquetRows::go_to(int64_t row) {
    const auto after = std::ranges::upper_bound(group_begin_, row);
    const auto group = static_cast<int>(after - group_begin_.begin()) - 1;
    const bool follows = batch_ && row >= batch_begin_;
    // The open reader will reach the row without reading another whole row group before it.
    if (follows && group_begin_[static_cast<size_t>(group)] <= batch_end_) return;
    std::vector<int> groups(group_begin_.size() - 1 - static_cast<size_t>(group));
    std::iota(groups.begin(), groups.end(), group);
    batches_ = value_read(file_->GetRecordBatchReader(groups, columns_), path_);
    batch_begin_ = batch_end_ = group_begin_[static_cast<size_t>(group)];
    batch_.reset();
}

void ParquetRows::next_batch() {
    check_read(batches_->ReadNext(&batch_), path_);
    if (!batch_) refuse_file(path_, "it ends before row " + std::to_string(batch_end_));
    batch_begin_ = batch_end_;
    batch_end_ += batch_->num_rows();
}

void ParquetRows::read(int64_t first, int64_t count, const std::function<void(const Part&)>& use) {
    if (count == 0) return;
    try {
        go_to(first);
        for (const int64_t end = first + count; first < end;) {
            while (!batch_ || first >= batch_end_) next_batch();
            const int64_t part = std::min(end, batch_end_) - first;
            use({.batch = *batch_, .offset = first - batch_begin_, .row = first, .count = part});
            first += part;
        }
    } catch (const parquet::ParquetException& error) {
        refuse_file(path_, error.what());
    }
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/parquet/rows.hpp"

#include "src/support/half.hpp"
#include "src/support/input_file.hpp"

#include <arrow/io/file.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <type_traits>

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

/// Calls `use` with the array as one of its type; false if that is not numeric.
template <typename Use>
bool with_numbers(const arrow::Array& array, const Use& use) {
    switch (array.type_id()) {
        case arrow::Type::INT8:
            use(static_cast<const arrow::Int8Array&>(array));
            return true;
        case arrow::Type::UINT8:
            use(static_cast<const arrow::UInt8Array&>(array));
            return true;
        case arrow::Type::INT16:
            use(static_cast<const arrow::Int16Array&>(array));
            return true;
        case arrow::Type::UINT16:
            use(static_cast<const arrow::UInt16Array&>(array));
            return true;
        case arrow::Type::INT32:
            use(static_cast<const arrow::Int32Array&>(array));
            return true;
        case arrow::Type::UINT32:
            use(static_cast<const arrow::UInt32Array&>(array));
            return true;
        case arrow::Type::INT64:
            use(static_cast<const arrow::Int64Array&>(array));
            return true;
        case arrow::Type::UINT64:
            use(static_cast<const arrow::UInt64Array&>(array));
            return true;
        case arrow::Type::HALF_FLOAT:
            use(static_cast<const arrow::HalfFloatArray&>(array));
            return true;
        case arrow::Type::FLOAT:
            use(static_cast<const arrow::FloatArray&>(array));
            return true;
        case arrow::Type::DOUBLE:
            use(static_cast<const arrow::DoubleArray&>(array));
            return true;
        default:
            return false;
    }
}

[[noreturn]] void refuse_type(const arrow::Array& array, const std::string& where,
                              const char* expected) {
    throw InputFileError(where + " is of type " + array.type()->ToString() + "; it must be " +
                         expected);
}

template <typename To>
void copy_as(const arrow::Array& from, int64_t first, std::span<To> to, const std::string& where) {
    const bool known = with_numbers(from, [&](const auto& array) {
        using Array = std::decay_t<decltype(array)>;
        for (size_t i = 0; i < to.size(); ++i) {
            const auto element = array.Value(first + static_cast<int64_t>(i));
            if constexpr (std::is_same_v<Array, arrow::HalfFloatArray>) {
                to[i] = static_cast<To>(number_of_half(element));
            } else {
                to[i] = static_cast<To>(element);
            }
        }
    });
    if (!known) refuse_type(from, where, "integers or floating-point numbers");
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

const arrow::Array& column_of(const ParquetRows::Part& part, const char* name,
                              const std::string& path) {
    const std::shared_ptr<arrow::Array> column = part.batch.GetColumnByName(name);
    if (!column) {
        throw InputFileError(path + ": has several columns \"" + std::string(name) +
                             "\"; keep one of them");
    }
    for (int64_t i = 0; column->null_count() > 0 && i < part.count; ++i) {
        if (column->IsNull(part.offset + i)) {
            throw InputFileError(place_of(path, part.row + i, name) +
                                 " is missing; fill it or remove the row");
        }
    }
    return *column;  // the batch keeps it
}

void copy_numbers(const arrow::Array& from, int64_t first, std::span<double> to,
                  const std::string& where) {
    copy_as(from, first, to, where);
}
void copy_numbers(const arrow::Array& from, int64_t first, std::span<float> to,
                  const std::string& where) {
    copy_as(from, first, to, where);
}

int64_t integer_at(const arrow::Array& from, int64_t index, const std::string& where) {
    int64_t integer = 0;
    bool fits = false;
    with_numbers(from, [&](const auto& array) {
        using Value = std::decay_t<decltype(array.Value(0))>;
        using Array = std::decay_t<decltype(array)>;
        if constexpr (std::is_integral_v<Value> && !std::is_same_v<Array, arrow::HalfFloatArray>) {
            integer = static_cast<int64_t>(array.Value(index));
            fits = true;
        }
    });
    if (!fits) refuse_type(from, where, "integers");
    return integer;
}

void check_ids(const ParquetRows::Part& part, const std::string& path) {
    if (part.batch.schema()->GetFieldIndex("id") < 0) return;
    const arrow::Array& ids = column_of(part, "id", path);
    for (int64_t i = 0; i < part.count; ++i) {
        const int64_t id = integer_at(ids, part.offset + i, path + ": column id");
        if (id == part.row + i) continue;
        throw InputFileError(place_of(path, part.row + i, "id") + " is " + std::to_string(id) +
                             "; ids must be 0, 1, 2 and so on: sort the table by id, and number "
                             "samples from 0");
    }
}

}  // namespace vocabpipe

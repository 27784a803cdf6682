// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/parquet/parquet.hpp"
#include "src/support/output_file.hpp"
#include "vocabpipe/error.hpp"

#include <arrow/api.h>
#include <arrow/io/interfaces.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include <exception>
#include <utility>

namespace vocabpipe {

namespace {

/// Arrow's stream into a file that appears when it is complete.
class IntoOutputFile : public arrow::io::OutputStream {
public:
    explicit IntoOutputFile(OutputFile& file) : file_(file) {}

    arrow::Status Write(const void* data, int64_t bytes) override {
        try {
            file_.write({static_cast<const std::byte*>(data), static_cast<size_t>(bytes)});
        } catch (...) {
            error_ = std::current_exception();
            return arrow::Status::IOError("see error_");
        }
        return arrow::Status::OK();
    }
    using arrow::io::OutputStream::Write;
    arrow::Result<int64_t> Tell() const override { return file_.size(); }
    arrow::Status Close() override {
        closed_ = true;
        return arrow::Status::OK();
    }
    [[nodiscard]] bool closed() const override { return closed_; }

    /// Throws the file's error, if that caused a status.
    void rethrow() const {
        if (error_) std::rethrow_exception(error_);
    }

private:
    OutputFile& file_;
    std::exception_ptr error_;
    bool closed_ = false;
};

std::shared_ptr<arrow::DataType> type_of(const TableColumn& column) {
    switch (column.kind) {
        case TableColumn::Kind::integer:
            return arrow::int64();
        case TableColumn::Kind::number:
            return arrow::float64();
        case TableColumn::Kind::number_list:
            return arrow::fixed_size_list(arrow::float32(), static_cast<int32_t>(column.width));
    }
    return nullptr;
}

std::shared_ptr<arrow::Schema> schema_of(const std::vector<TableColumn>& columns) {
    arrow::FieldVector fields;
    for (const TableColumn& column : columns) {
        fields.push_back(arrow::field(column.name, type_of(column), /*nullable=*/false));
    }
    return arrow::schema(std::move(fields));
}

class ArrowOutput : public TableOutput {
public:
    ArrowOutput(const std::string& path, const std::vector<TableColumn>& columns)
        : columns_(columns),
          file_(path),
          stream_(std::make_shared<IntoOutputFile>(file_)),
          schema_(schema_of(columns)) {
        auto writer = parquet::arrow::FileWriter::Open(
            *schema_, arrow::default_memory_pool(), stream_, parquet::default_writer_properties(),
            // Otherwise lists of one length are read back as lists of any length.
            parquet::ArrowWriterProperties::Builder().store_schema()->build());
        check(writer.status());
        writer_ = std::move(writer).ValueUnsafe();
    }

    void write(int64_t rows, const std::vector<ColumnValues>& columns) override {
        arrow::ArrayVector arrays;
        for (size_t i = 0; i < columns_.size(); ++i) {
            arrays.push_back(array_of(columns_[i], columns[i], rows));
        }
        check(writer_->WriteTable(*arrow::Table::Make(schema_, std::move(arrays), rows), rows));
    }
    void publish() override {
        check(writer_->Close());
        file_.publish();
    }

private:
    void check(const arrow::Status& status) const {
        if (status.ok()) return;
        stream_->rethrow();
        throw OutputFileError(file_.path() + ": cannot be written as Parquet: " + status.message());
    }
    /// Does not copy: the values outlive the row group.
    template <typename T>
    static std::shared_ptr<arrow::Array> view_of(std::span<const T> values,
                                                 std::shared_ptr<arrow::DataType> type) {
        return arrow::MakeArray(arrow::ArrayData::Make(
            std::move(type), std::ssize(values),
            {nullptr, arrow::Buffer::Wrap(values.data(), values.size())}, 0));
    }
    static std::shared_ptr<arrow::Array> array_of(const TableColumn& column,
                                                  const ColumnValues& values, int64_t rows) {
        switch (column.kind) {
            case TableColumn::Kind::integer:
                return view_of(values.integers, arrow::int64());
            case TableColumn::Kind::number:
                return view_of(values.numbers, arrow::float64());
            case TableColumn::Kind::number_list:
                break;
        }
        return std::make_shared<arrow::FixedSizeListArray>(type_of(column), rows,
                                                           view_of(values.lists, arrow::float32()));
    }

    std::vector<TableColumn> columns_;
    OutputFile file_;
    std::shared_ptr<IntoOutputFile> stream_;
    std::shared_ptr<arrow::Schema> schema_;
    std::unique_ptr<parquet::arrow::FileWriter> writer_;
};

}  // namespace

std::unique_ptr<TableOutput> create_parquet(const std::string& path,
                                            const std::vector<TableColumn>& columns) {
    return std::make_unique<ArrowOutput>(path, columns);
}

}  // namespace vocabpipe

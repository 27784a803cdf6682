// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/table_output.hpp"

#include "src/select/files/npy/npy_file.hpp"
#include "src/select/files/parquet/parquet.hpp"
#include "src/select/files/sample_input.hpp"
#include "src/support/flag.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <optional>

namespace vocabpipe {

namespace {

using Kind = TableColumn::Kind;

class NpyTable : public TableOutput {
public:
    NpyTable(const std::string& path, const std::vector<TableColumn>& columns, int64_t rows) {
        if (columns.size() == 1) {
            const TableColumn& column = columns.front();
            if (column.kind == Kind::integer) file_.emplace(path, NpyType::i8, std::vector{rows});
            if (column.kind == Kind::number) file_.emplace(path, NpyType::f8, std::vector{rows});
            if (column.kind == Kind::number_list) {
                file_.emplace(path, NpyType::f4, std::vector{rows, column.width});
            }
            return;
        }
        if (std::ranges::any_of(columns, [](const TableColumn& column) {
                return column.kind == Kind::number_list;
            })) {
            throw UsageError(path + ": .npy holds one array; choose one column, or use .parquet");
        }
        file_.emplace(path, NpyType::f8, std::vector{rows, std::ssize(columns)});
    }
    void write(int64_t rows, const std::vector<ColumnValues>& columns) override {
        if (columns.size() == 1) {
            file_->write(columns.front().integers);
            file_->write(columns.front().numbers);
            file_->write(columns.front().lists);
            return;
        }
        matrix_.clear();
        for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
            for (const ColumnValues& column : columns) {
                matrix_.push_back(column.integers.empty()
                                      ? column.numbers[row]
                                      : static_cast<double>(column.integers[row]));
            }
        }
        file_->write(std::span<const double>(matrix_));
    }
    void publish() override { file_->publish(); }

private:
    std::optional<NpyOutput> file_;
    std::vector<double> matrix_;
};

/// Text: the numbers of a row with spaces between them, each in the shortest form that reads back
/// as the same number.
class TextTableOutput : public TableOutput {
public:
    TextTableOutput(const std::string& path, const std::vector<TableColumn>& columns)
        : columns_(columns), file_(path) {}
    void write(int64_t rows, const std::vector<ColumnValues>& columns) override {
        for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
            text_.clear();
            for (size_t i = 0; i < columns_.size(); ++i) add(columns_[i], columns[i], row);
            text_.back() = '\n';
            file_.write(text_);
        }
    }
    void publish() override { file_.publish(); }

private:
    void add(const TableColumn& column, const ColumnValues& values, size_t row) {
        if (column.kind == Kind::integer) text_ += std::to_string(values.integers[row]) + ' ';
        if (column.kind == Kind::number) text_ += shortest_text(values.numbers[row]) + ' ';
        if (column.kind != Kind::number_list) return;
        const auto width = static_cast<size_t>(column.width);
        for (const float number : values.lists.subspan(row * width, width)) {
            text_ += shortest_text(number) + ' ';
        }
    }

    std::vector<TableColumn> columns_;
    OutputFile file_;
    std::string text_;
};

}  // namespace

std::unique_ptr<TableOutput> create_table(const std::string& path,
                                          const std::vector<TableColumn>& columns, int64_t rows) {
    if (is_parquet(path)) return create_parquet(path, columns);
    if (is_npy(path)) return std::make_unique<NpyTable>(path, columns, rows);
    if (path.ends_with(".txt")) return std::make_unique<TextTableOutput>(path, columns);
    throw UsageError("--output " + path + ": must end in .parquet, .npy or .txt");
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/parquet_texts.hpp"

#include <algorithm>
#include <vector>

#include "src/support/parquet_rows.hpp"
#include "src/train/text/line_splitter.hpp"
#include "src/train/text/text_file.hpp"
#include "src/train/text/utf8_check.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

constexpr int64_t kBatchRows = 256;  // documents are thousands of bytes long, some millions

ParquetRows open_rows(const std::string& path, const std::string& column) {
    return {path, {column}, "", kBatchRows};
}

/// Why a text is no document; null: it is one.
const char* refusal(std::string_view text) {
    if (text.size() > LineSplitter::kMostBytes) return LineSplitter::kTooLong;
    Utf8Check check;
    check.feed(text);
    check.end();
    return check.invalid() > 0 ? "is not UTF-8" : nullptr;
}

template <typename Strings>
void take_rows(const Strings& texts, const ParquetRows::Part& part,
               const std::function<void(const TextRow&)>& take) {
    for (int64_t i = 0; i < part.count; ++i) {
        TextRow row{.number = part.row + i + 1};
        if (texts.IsNull(part.offset + i)) {
            row.bad = "has no text (null)";
        } else {
            row.text = texts.GetView(part.offset + i);
            row.bad = refusal(row.text);
        }
        take(row);
    }
}

void take_part(const ParquetRows::Part& part, const std::string& path, const std::string& column,
               const std::function<void(const TextRow&)>& take) {
    const std::shared_ptr<arrow::Array> texts = part.batch.GetColumnByName(column);
    if (texts == nullptr) {
        throw InputFileError(path + ": has several columns \"" + column + "\"; keep one of them");
    }
    if (texts->type_id() == arrow::Type::STRING) {
        take_rows(static_cast<const arrow::StringArray&>(*texts), part, take);
    } else if (texts->type_id() == arrow::Type::LARGE_STRING) {
        take_rows(static_cast<const arrow::LargeStringArray&>(*texts), part, take);
    } else {
        throw InputFileError(path + ": column " + column + " is of type " +
                             texts->type()->ToString() +
                             "; it must be strings: choose another with --json-keys");
    }
}

}  // namespace

void read_parquet_texts(const std::string& path, const std::string& column,
                        const std::function<void(const TextRow&)>& take,
                        const std::function<void(int64_t)>& progress) {
    ParquetRows rows = open_rows(path, column);
    const int64_t bytes = text_file_bytes(path);
    int64_t read = 0;
    rows.read(0, rows.rows(), [&](const ParquetRows::Part& part) {
        const auto share =
            static_cast<double>(part.row + part.count) / static_cast<double>(rows.rows());
        const auto until = static_cast<int64_t>(share * static_cast<double>(bytes));
        if (progress) progress(until - read);
        read = until;
        take_part(part, path, column, take);
    });
}

void check_parquet_texts(const std::string& path, const std::string& column) {
    (void)open_rows(path, column);
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
// Texts in Parquet files. Without VOCABPIPE_ENABLE_PARQUET both functions throw a UsageError that
// says so.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace vocabpipe {

/// A row of a column of texts.
struct TextRow {
    int64_t number = 0;  ///< in the file, from 1
    std::string_view text;
    const char* bad = nullptr;  ///< why it has no document; null: it has one
};

/// Calls `take` for every row of a column of strings, in their order. `progress` gets the bytes of
/// the file that belong to rows, before these; it may be empty. Holds a batch of 256 rows and the
/// pages that it is in. InputFileError for a file that is damaged or has no such column of strings.
void read_parquet_texts(const std::string& path, const std::string& column,
                        const std::function<void(const TextRow&)>& take,
                        const std::function<void(int64_t bytes)>& progress = {});

/// Throws what read_parquet_texts() throws before it reads a row.
void check_parquet_texts(const std::string& path, const std::string& column);

}  // namespace vocabpipe

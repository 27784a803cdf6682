// SPDX-License-Identifier: Apache-2.0
// Numbers in columns of a Parquet file; for the files that include Arrow.
#pragma once

#include "src/select/files/sample_input.hpp"
#include "src/support/parquet_rows.hpp"
#include "vocabpipe/error.hpp"

#include <arrow/api.h>

#include <cstdint>
#include <span>
#include <string>

namespace vocabpipe {

/// A column of a batch; InputFileError if one of its rows is null.
[[nodiscard]] const arrow::Array& column_of(const ParquetRows::Part& part, const char* name,
                                            const std::string& path);
/// Copies elements of an array of integers or floating-point numbers. `where`: the column, for the
/// InputFileError if it has another type.
void copy_numbers(const arrow::Array& from, int64_t first, std::span<double> to,
                  const std::string& where);
void copy_numbers(const arrow::Array& from, int64_t first, std::span<float> to,
                  const std::string& where);
/// An element of an array of integers.
[[nodiscard]] int64_t integer_at(const arrow::Array& from, int64_t index, const std::string& where);
/// InputFileError unless the column "id", if present, contains the row numbers.
void check_ids(const ParquetRows::Part& part, const std::string& path);

}  // namespace vocabpipe

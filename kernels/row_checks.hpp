// SPDX-License-Identifier: Apache-2.0
// Checks of the arguments of operators on groups of rows, which all devices share. They throw
// UsageError.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>

#include "kernels/check.hpp"

namespace vocabpipe::kernels {

/// `rows` are those of mean_rows()'s x and spread_rows()'s dx.
inline void require_row_groups(ConstTensor rows, int64_t count, ConstTensor means) {
    require(count >= 1, "a count of 1 or more");
    require(has_shape(rows, means.rows * count, means.cols),
            "count rows for each row of the means");
    require(rows.dtype == means.dtype, "rows and means of one type");
}

inline void require_column_sums(ConstTensor x, ConstTensor sums) {
    require(has_shape(sums, 1, x.cols) && sums.dtype == DType::fp32, "sums (1, cols) fp32");
}

inline void require_columns_to_rows(std::span<const float> columns, int64_t tokens, ConstTensor y) {
    require(y.rows == tokens, "one row of y per token");
    require(std::ssize(columns) == y.size(), "columns (columns of y, tokens)");
}

}  // namespace vocabpipe::kernels

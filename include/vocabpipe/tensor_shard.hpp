// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// The elements of a matrix (or of a vector, which has one row) that a rank holds: all rows of
/// `rows` with all columns of `columns`, in their order. Ranges are ascending and do not overlap.
struct TensorShard {
    /// Rows, or columns, [first, first + count) of the logical tensor.
    struct Range {
        int64_t first = 0;  ///< from 0
        int64_t count = 0;  ///< how many
        /// Member by member.
        friend bool operator==(const Range&, const Range&) = default;
    };
    std::vector<Range> rows;     ///< of the logical tensor
    std::vector<Range> columns;  ///< of each of these rows

    /// All of a matrix.
    [[nodiscard]] static TensorShard whole(int64_t row_count, int64_t column_count) {
        return {.rows = {{0, row_count}}, .columns = {{0, column_count}}};
    }
    /// Rows of the part that is held.
    [[nodiscard]] int64_t row_count() const { return count_of(rows); }
    /// Columns of the part that is held.
    [[nodiscard]] int64_t column_count() const { return count_of(columns); }
    /// Elements of the part that is held.
    [[nodiscard]] int64_t size() const { return row_count() * column_count(); }
    /// Member by member.
    friend bool operator==(const TensorShard&, const TensorShard&) = default;

private:
    static int64_t count_of(const std::vector<Range>& ranges) {
        int64_t count = 0;
        for (const Range& range : ranges) count += range.count;
        return count;
    }
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/matmul_strips.hpp"

#include <algorithm>

namespace vocabpipe::kernels::host {

namespace {

struct Range {
    int64_t begin = 0, count = 0, padded = 0;
};

/// Pads to a last group of at least 4 rows.
int64_t padded_rows(int64_t rows) {
    constexpr int64_t kGroup = 6, kFewest = 4;
    const int64_t last = rows % kGroup;
    return last == 0 || last >= kFewest ? rows : rows - last + kFewest;
}

std::vector<Range> row_ranges(int64_t m) {
    constexpr int64_t kMost = 240, kBlock = 48, kSmallest = 16;
    std::vector<Range> ranges;
    for (int64_t row = 0; row < m; row += ranges.back().count) {
        const int64_t left = m - row;
        const int64_t count =
            left >= kBlock ? std::min(left, kMost) / kBlock * kBlock : std::min(left, kSmallest);
        ranges.push_back({row, count, padded_rows(count)});
    }
    return ranges;
}

std::vector<Range> column_ranges(int64_t n) {
    constexpr int64_t kMost = 4032, kGroup = 16, kFewest = 9;
    std::vector<Range> ranges;
    for (int64_t column = 0; column < n; column += ranges.back().count) {
        const int64_t left = n - column;
        const int64_t count = left >= kGroup ? std::min(left, kMost) / kGroup * kGroup : left;
        ranges.push_back({column, count, std::max(count, kFewest)});
    }
    return ranges;
}

}  // namespace

std::vector<MatmulStrip> matmul_strips(int64_t m, int64_t n) {
    std::vector<MatmulStrip> strips;
    for (const Range& columns : column_ranges(n)) {
        for (const Range& rows : row_ranges(m)) {
            strips.push_back({rows.begin, rows.count, columns.begin, columns.count, rows.padded,
                              columns.padded});
        }
    }
    return strips;
}

}  // namespace vocabpipe::kernels::host

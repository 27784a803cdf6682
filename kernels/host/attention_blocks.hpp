// SPDX-License-Identifier: Apache-2.0
// How the host's attention cuts a sequence into blocks of queries, and which keys each of them
// sees.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "vocabpipe/attention_shape.hpp"

namespace vocabpipe::kernels::host {

/// Query rows per block: enough for full GEMM speed, few enough that little is computed in vain
/// above the diagonal and that a block of scores against 512 keys stays in the L2 cache.
inline constexpr int64_t kBlockRows = 64;

/// Consecutive columns of a row of scores.
struct Columns {
    int64_t begin;
    int64_t end;
};

/// A block of query rows [begin, begin + rows) and the keys [first_key, end_key) that any of them
/// sees: the columns of its scores.
struct RowBlock {
    int64_t begin;
    int64_t rows;
    int64_t token;  ///< the last key that row 0 sees; each row sees one more, if there are more
    int64_t first_key;
    int64_t end_key;
    int64_t window;
    const int32_t* first_visible;  ///< for the block's rows; null: 0 for all
    [[nodiscard]] int64_t keys() const { return end_key - first_key; }
    /// The columns of row i that its query sees.
    [[nodiscard]] Columns visible(int64_t i) const {
        const int64_t end = std::min(token + i + 1, end_key) - first_key;
        int64_t first = window > 0 ? std::max<int64_t>(end - window, 0) : 0;
        if (first_visible != nullptr) first = std::max(first, first_visible[i] - first_key);
        return {first, end};
    }
};

/// Cuts the queries of one sequence into blocks, from the first query on; `first_visible` holds
/// their values, or none.
[[nodiscard]] std::vector<RowBlock> row_blocks(const AttentionShape& shape,
                                               std::span<const int32_t> first_visible);

}  // namespace vocabpipe::kernels::host

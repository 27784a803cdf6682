// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/attention_blocks.hpp"

namespace vocabpipe::kernels::host {

std::vector<RowBlock> row_blocks(const AttentionShape& shape,
                                 std::span<const int32_t> first_visible) {
    std::vector<RowBlock> result;
    for (int64_t begin = 0; begin < shape.query_count(); begin += kBlockRows) {
        const int64_t rows = std::min(kBlockRows, shape.query_count() - begin);
        // A query that is not causal sees what the last token would.
        const int64_t token = shape.causal ? shape.first_query() + begin : shape.seq_length - 1;
        int64_t first = shape.window > 0 ? std::max<int64_t>(token - shape.window + 1, 0) : 0;
        const int32_t* of_rows = nullptr;
        if (!first_visible.empty()) {
            of_rows = first_visible.data() + begin;
            // Rounded to whole blocks, as plain causal attention has them.
            const int64_t earliest = *std::min_element(of_rows, of_rows + rows);
            first = std::max(first, earliest / kBlockRows * kBlockRows);
        }
        result.push_back({.begin = begin,
                          .rows = rows,
                          .token = token,
                          .first_key = first,
                          .end_key = std::min(token + rows, shape.seq_length),
                          .window = shape.window,
                          .first_visible = of_rows});
    }
    return result;
}

}  // namespace vocabpipe::kernels::host

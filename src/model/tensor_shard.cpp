// SPDX-License-Identifier: Apache-2.0
#include "src/model/tensor_shard.hpp"

#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe {

TensorShard tensor_shard(const LogicalParameter& parameter, TeamPlace place) {
    TensorShard shard = TensorShard::whole(parameter.rows, parameter.cols);
    if (parameter.cut == TensorCut::repeated || place.ranks == 1) return shard;
    const bool by_rows = parameter.cut != TensorCut::columns;
    std::vector<int64_t> ranges = parameter.ranges;
    if (ranges.empty()) ranges.push_back(by_rows ? parameter.rows : parameter.cols);
    std::vector<TensorShard::Range>& held = by_rows ? shard.rows : shard.columns;
    held.clear();
    int64_t begin = 0;
    for (const int64_t range : ranges) {
        if (range % place.ranks != 0) {
            throw UsageError((parameter.cut == TensorCut::experts ? "--expert" : "--tensor") +
                             std::string("-model-parallel-size ") + std::to_string(place.ranks) +
                             ": " + std::to_string(range) + (by_rows ? " rows" : " columns") +
                             " of " + parameter.name +
                             " do not divide into so many equal parts; use a divisor of them");
        }
        const int64_t part = range / place.ranks;
        const TensorShard::Range next{begin + part * place.rank, part};
        // Parts of ranges that touch merge into one range.
        if (!held.empty() && held.back().first + held.back().count == next.first) {
            held.back().count += next.count;
        } else {
            held.push_back(next);
        }
        begin += range;
    }
    return shard;
}

Axis gradient_axis(TensorCut cut, int tensor, int expert) {
    if (cut == TensorCut::experts && expert > 1) return Axis::expert_data;
    // Each tensor rank has different tokens, and so a part of the gradient.
    const bool whole = cut == TensorCut::repeated || cut == TensorCut::experts;
    return whole && tensor > 1 ? Axis::data_tensor : Axis::data;
}

TensorShard row_shard(TensorShard::Range rows, int64_t columns, TeamPlace place) {
    const auto cut = [&](int i) { return rows.first + rows.count * i / place.ranks; };
    const int64_t first = cut(place.rank);
    return {.rows = {{first, cut(place.rank + 1) - first}}, .columns = {{0, columns}}};
}

void for_each_run(const TensorShard& shard, int64_t logical_columns,
                  const std::function<void(const ElementRun&)>& work) {
    const bool whole_rows = shard.column_count() == logical_columns;
    int64_t held = 0;
    const auto run = [&](int64_t logical, int64_t count) {
        if (count > 0) work({held, logical, count});
        held += count;
    };
    for (const TensorShard::Range& rows : shard.rows) {
        if (whole_rows) {
            run(rows.first * logical_columns, rows.count * logical_columns);
            continue;
        }
        for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
            for (const TensorShard::Range& columns : shard.columns) {
                run(row * logical_columns + columns.first, columns.count);
            }
        }
    }
}

}  // namespace vocabpipe

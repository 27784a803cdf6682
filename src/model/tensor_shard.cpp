// SPDX-License-Identifier: Apache-2.0
#include "src/model/tensor_shard.hpp"

#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe {

namespace {

int64_t count_of(const std::vector<TensorShard::Range>& ranges) {
    int64_t count = 0;
    for (const TensorShard::Range& range : ranges) count += range.count;
    return count;
}

}  // namespace

int64_t TensorShard::row_count() const {
    return count_of(rows);
}

int64_t TensorShard::column_count() const {
    return count_of(columns);
}

TensorShard tensor_shard(const LogicalParameter& parameter, TensorPlace place) {
    TensorShard shard{.rows = {{0, parameter.rows}}, .columns = {{0, parameter.cols}}};
    if (parameter.cut == TensorCut::repeated || place.ranks == 1) return shard;
    const bool by_rows = parameter.cut == TensorCut::rows;
    std::vector<int64_t> ranges = parameter.ranges;
    if (ranges.empty()) ranges.push_back(by_rows ? parameter.rows : parameter.cols);
    std::vector<TensorShard::Range>& held = by_rows ? shard.rows : shard.columns;
    held.clear();
    int64_t begin = 0;
    for (const int64_t range : ranges) {
        if (range % place.ranks != 0) {
            throw UsageError("--tensor-model-parallel-size " + std::to_string(place.ranks) + ": " +
                             std::to_string(range) + (by_rows ? " rows" : " columns") + " of " +
                             parameter.name +
                             " do not divide into so many equal parts; use a divisor of them");
        }
        const int64_t part = range / place.ranks;
        const TensorShard::Range next{begin + part * place.rank, part};
        // The parts of the only range, or of neighbours that touch, are one range.
        if (!held.empty() && held.back().first + held.back().count == next.first) {
            held.back().count += next.count;
        } else {
            held.push_back(next);
        }
        begin += range;
    }
    return shard;
}

}  // namespace vocabpipe

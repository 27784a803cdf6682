// SPDX-License-Identifier: Apache-2.0
#include "src/model/tensor_shard.hpp"

#include "vocabpipe/error.hpp"

#include <string>
#include <vector>

namespace vocabpipe {

namespace {

using Range = TensorShard::Range;

/// Which of `parts` equal parts of every range of rows or columns to take.
struct Cut {
    int part = 0;
    int parts = 1;
    const char* flag = "";   ///< that asks for so many parts
    const char* units = "";  ///< rows or columns
};

/// The part of each of `ranges`, which follow each other. Throws UsageError for one that does not
/// divide.
std::vector<Range> cut_ranges(const std::vector<int64_t>& ranges, const Cut& cut,
                              const std::string& name) {
    std::vector<Range> held;
    int64_t begin = 0;
    for (const int64_t range : ranges) {
        if (range % cut.parts != 0) {
            throw UsageError(std::string(cut.flag) + " " + std::to_string(cut.parts) + ": " +
                             std::to_string(range) + " " + cut.units + " of " + name +
                             " do not divide into so many equal parts; use a divisor of them");
        }
        const int64_t part = range / cut.parts;
        const Range next{begin + part * cut.part, part};
        // Parts of ranges that touch merge into one range.
        if (!held.empty() && held.back().first + held.back().count == next.first) {
            held.back().count += next.count;
        } else {
            held.push_back(next);
        }
        begin += range;
    }
    return held;
}

/// The ranges, or one of all where none are given.
std::vector<int64_t> ranges_of(const LogicalParameter& parameter, int64_t all) {
    return parameter.ranges.empty() ? std::vector{all} : parameter.ranges;
}

/// The rows of `of` that are inside `rows`.
std::vector<Range> inside(const std::vector<Range>& of, Range rows) {
    std::vector<Range> held;
    for (const Range& one : of) {
        if (one.first >= rows.first && one.first < rows.first + rows.count) held.push_back(one);
    }
    return held;
}

TensorShard expert_shard(const LogicalParameter& parameter, TeamPlace place) {
    const int x = place.expert_tensor;
    TensorShard shard = TensorShard::whole(parameter.rows, parameter.cols);
    shard.rows = cut_ranges({parameter.rows},
                            {.part = place.rank / x,
                             .parts = place.ranks / x,
                             .flag = "--expert-model-parallel-size",
                             .units = "rows"},
                            parameter.name);
    if (x == 1) return shard;
    const bool by_rows = parameter.expert_cut == TensorCut::rows;
    const std::vector<Range> parts =
        cut_ranges(by_rows ? ranges_of(parameter, parameter.rows) : std::vector{parameter.cols},
                   {.part = place.rank % x,
                    .parts = x,
                    .flag = "--expert-tensor-parallel-size",
                    .units = by_rows ? "rows" : "columns"},
                   parameter.name);
    if (by_rows) {
        shard.rows = inside(parts, shard.rows.front());
    } else {
        shard.columns = parts;
    }
    return shard;
}

}  // namespace

TensorShard tensor_shard(const LogicalParameter& parameter, TeamPlace place) {
    if (parameter.cut == TensorCut::experts) return expert_shard(parameter, place);
    TensorShard shard = TensorShard::whole(parameter.rows, parameter.cols);
    if (parameter.cut == TensorCut::repeated || place.ranks == 1) return shard;
    const bool by_rows = parameter.cut == TensorCut::rows;
    (by_rows ? shard.rows : shard.columns) =
        cut_ranges(ranges_of(parameter, by_rows ? parameter.rows : parameter.cols),
                   {.part = place.rank,
                    .parts = place.ranks,
                    .flag = "--tensor-model-parallel-size",
                    .units = by_rows ? "rows" : "columns"},
                   parameter.name);
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

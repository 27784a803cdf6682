// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe::imported {

/// A stretch of time that a trainer gave a name, as its profiler recorded it.
struct NamedRange {
    std::string name;
    int64_t begin_ns = 0;  ///< on the clock of its rank
    int64_t end_ns = 0;    ///< on the same clock, at least begin_ns
};

/// The ranges that one rank of a run recorded.
struct RankRanges {
    std::string file;                ///< where they were read, for messages
    int rank = -1;                   ///< -1: the file does not say
    std::string host;                ///< ranks of one host share a clock; empty: not known
    std::vector<NamedRange> ranges;  ///< in any order
};

/// Adds `by_ns` to all times. False if one is out of range.
[[nodiscard]] inline bool add_to_clock(std::vector<NamedRange>& ranges, int64_t by_ns) {
    return std::ranges::none_of(ranges, [&](NamedRange& range) {
        return __builtin_add_overflow(range.begin_ns, by_ns, &range.begin_ns) ||
               __builtin_add_overflow(range.end_ns, by_ns, &range.end_ns);
    });
}

}  // namespace vocabpipe::imported

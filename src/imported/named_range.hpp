// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace vocabpipe::imported

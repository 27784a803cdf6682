// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// Items by the bin that they are in.
struct Bins {
    /// Bin b has items[begin[b]] to items[begin[b + 1] - 1]; one element more than bins.
    std::vector<int64_t> begin{0};
    std::vector<uint32_t> items;  ///< each once

    [[nodiscard]] int64_t count() const { return static_cast<int64_t>(begin.size()) - 1; }
};

/// Packs items of the given sizes into bins of `capacity`: from the largest to the smallest, each
/// into the bin with the least room that it fits into (best fit decreasing; Johnson et al. 1974,
/// at most 11/9 of the least number of bins, and 6/9). Bins are in the order of their first items,
/// and items of a bin ascend, so that the bins of items in a stream follow the stream. Depends on
/// the sizes alone.
///
/// Takes O(n log capacity) time and 20 n bytes. std::invalid_argument for a size that is not from 1
/// to `capacity`, or 2^32 - 1 items or more.
[[nodiscard]] Bins best_fit(std::span<const int32_t> sizes, int32_t capacity);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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

/// Packs items of the given sizes into bins: from the largest to the smallest, each into the bin
/// with the least room that it fits into; if it fits into none, a bin of the smallest capacity that
/// is enough is opened (best fit decreasing; Johnson et al. 1974, with one capacity at most 11/9 of
/// the least number of bins, and 6/9). So small items fill large bins before they open their own.
/// Bins are in the order of their first items, and items of a bin ascend, so that the bins of items
/// in a stream follow the stream. Depends on sizes and capacities alone.
///
/// `capacities` ascend. Takes O(n log capacity) time and 20 n bytes. std::invalid_argument for a
/// size that is not from 1 to the largest capacity, or 2^32 - 1 items or more.
[[nodiscard]] Bins best_fit(std::span<const int32_t> sizes, std::span<const int32_t> capacities);

/// A bin for each of `items` items.
[[nodiscard]] Bins one_each(size_t items);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/knn/nearest_lists.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// An entry of a graph's row as one number, which ascends by neighbour; ranges are those of
/// NearestKey.
using RowEntry = uint64_t;
[[nodiscard]] constexpr RowEntry row_entry(int64_t neighbour, int32_t similarity) {
    return static_cast<uint64_t>(neighbour) << 24 | static_cast<uint32_t>(similarity);
}
[[nodiscard]] constexpr int64_t neighbour_of(RowEntry entry) {
    return static_cast<int64_t>(entry >> 24);
}
[[nodiscard]] constexpr int32_t weight_of(RowEntry entry) {
    return static_cast<int32_t>(entry & 0xFFFFFF);
}

/// The nearest lists sorted by neighbour, in the lists' own memory.
class NeighbourRows {
public:
    explicit NeighbourRows(NearestLists lists);

    [[nodiscard]] std::span<const RowEntry> row(int64_t row) const {
        const size_t at = lists_.at(row);
        return std::span(lists_.words_).subspan(at + 1, lists_.words_[at]);
    }
    [[nodiscard]] bool contains(int64_t row, int64_t neighbour) const;

private:
    NearestLists lists_;  ///< per row: the number of entries, then the entries
};

}  // namespace vocabpipe

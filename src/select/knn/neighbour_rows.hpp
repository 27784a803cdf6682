// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/knn/nearest_lists.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// An entry of a graph's row as one number, which ascends by neighbour.
using RowEntry = uint64_t;
[[nodiscard]] constexpr RowEntry row_entry(uint32_t neighbour, int32_t similarity) {
    return uint64_t{neighbour} << 32 | static_cast<uint32_t>(similarity);
}
[[nodiscard]] constexpr uint32_t neighbour_of(RowEntry entry) {
    return static_cast<uint32_t>(entry >> 32);
}
[[nodiscard]] constexpr int32_t weight_of(RowEntry entry) {
    return static_cast<int32_t>(entry & UINT32_MAX);
}

/// The nearest lists sorted by neighbour, in the lists' own memory.
class NeighbourRows {
public:
    explicit NeighbourRows(NearestLists lists);

    [[nodiscard]] std::span<const RowEntry> row(int64_t row) const {
        const size_t at = lists_.at(row);
        return std::span(lists_.words_).subspan(at + 1, lists_.words_[at]);
    }
    [[nodiscard]] bool contains(int64_t row, uint32_t neighbour) const;

private:
    NearestLists lists_;  ///< per row: the number of entries, then the entries
};

}  // namespace vocabpipe

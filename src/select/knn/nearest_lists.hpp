// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// A neighbour of a sample as one number: larger is nearer, and in a tie the smaller id is larger.
/// 0 means none; so a similarity of 0 is no neighbour.
using NearestKey = uint64_t;
[[nodiscard]] constexpr NearestKey nearest_key(int32_t similarity, int64_t id) {
    return uint64_t{static_cast<uint32_t>(similarity)} << 32 |
           (UINT32_MAX - static_cast<uint32_t>(id));
}
[[nodiscard]] constexpr int32_t similarity_of(NearestKey key) {
    return static_cast<int32_t>(key >> 32);
}
[[nodiscard]] constexpr uint32_t id_of(NearestKey key) {
    return UINT32_MAX - static_cast<uint32_t>(key);
}

/// The k largest keys offered to each row, in any order.
class NearestLists {
public:
    NearestLists(int64_t rows, int64_t k);
    [[nodiscard]] static uint64_t bytes(int64_t rows, int64_t k) {
        return static_cast<uint64_t>(rows) * static_cast<uint64_t>(k + 1) * sizeof(NearestKey);
    }

    [[nodiscard]] int64_t rows() const { return rows_; }
    /// Keys up to this one have no effect.
    [[nodiscard]] NearestKey threshold(int64_t row) const;
    void offer(int64_t row, NearestKey key);

    /// Empties the lists, but ignores keys for a row in which `known` has k larger ones.
    void begin_beside(const NearestLists& known);
    /// Offers all keys of another list with the same rows.
    void take(const NearestLists& other);

    /// All k keys, 0 for missing ones, unsorted.
    [[nodiscard]] std::span<const NearestKey> row(int64_t row) const {
        return std::span(words_).subspan(at(row) + 1, k_);
    }
    /// For sending, together with the keys that the rows are compared with.
    [[nodiscard]] std::span<std::byte> all_bytes() {
        return std::as_writable_bytes(std::span(words_));
    }

private:
    friend class NeighbourRows;
    [[nodiscard]] size_t at(int64_t row) const { return static_cast<size_t>(row) * (k_ + 1); }

    int64_t rows_;
    size_t k_;
    std::vector<NearestKey>
        words_;  ///< per row: a lower bound of the keys, then a heap with the least key first
};

}  // namespace vocabpipe

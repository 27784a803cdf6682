// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/fixed_point.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// A neighbour of a sample as one number: larger is nearer, and in a tie the smaller id is larger.
/// 0 means none; so a similarity of 0 is no neighbour. Ids are below 2^40, similarities below 2^24
/// (a cosine of 1 is 2^20).
using NearestKey = uint64_t;
inline constexpr uint64_t kMostKeyId = (uint64_t{1} << 40) - 1;
[[nodiscard]] constexpr NearestKey nearest_key(int32_t similarity, int64_t id) {
    return static_cast<uint64_t>(similarity) << 40 | (kMostKeyId - static_cast<uint64_t>(id));
}
[[nodiscard]] constexpr int32_t similarity_of(NearestKey key) {
    return static_cast<int32_t>(key >> 40);
}
[[nodiscard]] constexpr int64_t id_of(NearestKey key) {
    return static_cast<int64_t>(kMostKeyId - (key & kMostKeyId));
}
/// The cosine rounded to the nearest multiple of 2^-20; 0, no neighbour, if that is 0 or less.
[[nodiscard]] inline NearestKey cosine_key(float cosine, int64_t id) {
    const long rounded = std::lrint(cosine * static_cast<float>(kFixedPointOne));
    if (rounded < 1) return 0;
    // The product of a row with itself may be rounded to slightly more than 1.
    return nearest_key(static_cast<int32_t>(std::min<long>(rounded, kFixedPointOne)), id);
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

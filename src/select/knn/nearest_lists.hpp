// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// A neighbour of a sample as one number: larger is nearer, and of equally near ones that with the
/// smaller id. 0 stands for none; a similarity of 0 is none.
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

/// The k largest keys that each row was offered, in whatever order that happened.
class NearestLists {
public:
    NearestLists(int64_t rows, int64_t k);
    [[nodiscard]] static uint64_t bytes(int64_t rows, int64_t k) {
        return static_cast<uint64_t>(rows) * static_cast<uint64_t>(k + 1) * sizeof(NearestKey);
    }

    [[nodiscard]] int64_t rows() const { return rows_; }
    /// Keys up to this one change nothing.
    [[nodiscard]] NearestKey threshold(int64_t row) const;
    void offer(int64_t row, NearestKey key);

    /// Makes the lists empty, but what `known` has k better ones than is not taken.
    void begin_beside(const NearestLists& known);
    /// Offers all that another has, of the same rows.
    void take(const NearestLists& other);

    /// All k, 0 where there are fewer, in no order.
    [[nodiscard]] std::span<const NearestKey> row(int64_t row) const {
        return std::span(words_).subspan(at(row) + 1, k_);
    }
    /// To be sent: what a row is compared with travels with it.
    [[nodiscard]] std::span<std::byte> all_bytes() {
        return std::as_writable_bytes(std::span(words_));
    }

private:
    friend class NeighbourRows;
    [[nodiscard]] size_t at(int64_t row) const { return static_cast<size_t>(row) * (k_ + 1); }

    int64_t rows_;
    size_t k_;
    std::vector<NearestKey>
        words_;  ///< of a row: a least key, then a heap with its least key first
};

}  // namespace vocabpipe

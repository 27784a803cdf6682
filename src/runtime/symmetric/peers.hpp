// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/symmetric_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace vocabpipe::symmetric {

/// Sizes of a symmetric memory.
struct Sizes {
    int members = 0;
    int64_t bytes = 0;  ///< of each member's buffer
    int signals = 0;    ///< of each member, with those of ranks and barriers
};

/// Bytes of a tile, in rows. One row: `stride` is not read.
template <typename Byte>
struct Rows {
    Byte* first = nullptr;
    int64_t row_bytes = 0;
    int64_t rows = 1;
    int64_t stride = 0;
    [[nodiscard]] int64_t bytes() const { return rows * row_bytes; }
};

/// How one member reaches the buffers and signals of all, itself included. Arguments are checked
/// by the caller.
class Peers {
public:
    virtual ~Peers() = default;
    /// This member's buffer.
    [[nodiscard]] virtual std::span<std::byte> own() = 0;
    /// Writes, then raises the signal unless it is SymmetricMemory::kNoSignal. No bytes: only that.
    virtual void push(int member, const Rows<const std::byte>& from, const TilePlace& to,
                      int signal) = 0;
    /// Begins to read; complete when pulled() returns true.
    virtual void start_pull(int member, const TilePlace& from, const Rows<std::byte>& to) = 0;
    [[nodiscard]] virtual bool pulled() = 0;
    /// Whether pushes to a member since the last pull from it may still be on their way.
    [[nodiscard]] virtual bool may_be_on_the_way(int member) const = 0;
    /// How often a signal of this member has been raised.
    [[nodiscard]] virtual uint64_t raised(int signal) const = 0;
};

/// Copies rows, of which both sides have equally many bytes; rows may be of different length.
void copy_rows(const Rows<const std::byte>& from, const Rows<std::byte>& to);

/// The rows of a place in a buffer.
template <typename Byte>
[[nodiscard]] Rows<Byte> rows_at(Byte* buffer, const TilePlace& place) {
    return {buffer + place.offset, place.row_bytes, place.rows, place.stride};
}

}  // namespace vocabpipe::symmetric

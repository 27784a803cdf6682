// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/safetensors/writer.hpp"
#include "vocabpipe/model_rank.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// A matrix of a rank that it saves, and its place in a file. A *line* is a row of the stored
/// tensor.
struct StoredRows {
    const std::byte* data = nullptr;  ///< row-major; in the device's memory or in a snapshot
    int64_t rows = 0, cols = 0;
    int64_t item_bytes = 4;
    bool transposed = false;                   ///< its columns are lines, not its rows
    uint32_t file = 0;                         ///< index of the plan
    uint64_t tensor = 0;                       ///< where the tensor begins in the file
    int64_t line_size = 0;                     ///< elements per line
    std::vector<TensorShard::Range> lines;     ///< that the matrix covers
    std::vector<TensorShard::Range> elements;  ///< of each of these lines
    [[nodiscard]] uint64_t bytes() const { return static_cast<uint64_t>(rows * cols * item_bytes); }
    /// Byte in the file.
    [[nodiscard]] uint64_t offset(int64_t line, int64_t element) const {
        return tensor + static_cast<uint64_t>((line * line_size + element) * item_bytes);
    }
};

/// All matrices that a rank saves, in the device's memory: weights and optimizer state, in the
/// files of `plans`.
[[nodiscard]] std::vector<StoredRows> stored_rows(ModelRank& model,
                                                  std::span<const SafetensorsPlan> plans);

/// Bytes of one tensor that one rank wrote.
struct Piece {
    uint64_t begin = 0, end = 0;  ///< in the file; other ranks' bytes may lie between
    uint64_t bytes = 0;           ///< without the gaps
    /// Contribution to the CRC-32C of all bytes up to `end`, which is the sum modulo 2 over the
    /// pieces; for bytes without gaps, their own CRC-32C.
    uint32_t crc = 0;
    uint32_t file = 0;
};

/// Writes rows into their file and appends their pieces. `device`: whose memory they are in; null:
/// host memory. Returns early, with less, once `stop` is true.
void write_rows(std::span<const StoredRows> rows, SharedOutputFile& file, Device* device,
                const std::atomic<bool>& stop, std::vector<Piece>& pieces);

}  // namespace vocabpipe

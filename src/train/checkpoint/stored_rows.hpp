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

/// Rows that a rank stores, and where.
struct StoredRows {
    const std::byte* data = nullptr;  ///< row-major; in the device's memory or in a snapshot
    int64_t rows = 0, cols = 0;
    int64_t item_bytes = 4;
    bool transposed = false;  ///< a whole matrix, stored as [cols, rows]
    uint32_t file = 0;        ///< index of the plan
    uint64_t offset = 0;      ///< in the file
    [[nodiscard]] uint64_t bytes() const { return static_cast<uint64_t>(rows * cols * item_bytes); }
};

/// All of a rank, in the device's memory: weights and optimizer state, in the plans that have them.
[[nodiscard]] std::vector<StoredRows> stored_rows(ModelRank& model,
                                                  std::span<const SafetensorsPlan> plans);

/// Bytes of one tensor that one rank wrote, and their CRC-32C.
struct Piece {
    uint64_t begin = 0, bytes = 0;
    uint32_t crc = 0;
    uint32_t file = 0;
};

/// Writes rows into their file and adds their pieces. `device`: whose memory they are in; null: the
/// host reads them where they are. Ends early, with less, once `stop` is true.
void write_rows(std::span<const StoredRows> rows, SharedOutputFile& file, Device* device,
                const std::atomic<bool>& stop, std::vector<Piece>& pieces);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/disk/scratch_file.hpp"
#include "src/select/disk/state_blocks.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace vocabpipe {

/// Bytes of messages to the blocks of a rank's state, in a file until the block's turn.
class MessageRuns {
public:
    MessageRuns(const StateBlocks& blocks, int64_t count);
    /// Memory of `count` blocks.
    [[nodiscard]] static uint64_t bytes(const StateBlocks& blocks, int64_t count) {
        return static_cast<uint64_t>(count + 1) * blocks.chunk_bytes;
    }

    void add(int64_t block, std::span<const std::byte> message);
    /// Calls use(bytes) with the messages to a block, each call a number of whole ones of
    /// `message_bytes`, in the order in which they were added.
    template <typename Use>
    void read(int64_t block, const Use& use) {
        const Run& run = runs_[static_cast<size_t>(block)];
        for (const Chunk& chunk : run.chunks) use(chunk_of(chunk));
        if (!run.waiting.empty()) use(std::span<const std::byte>(run.waiting));
    }

private:
    struct Chunk {
        uint64_t offset = 0;
        uint32_t bytes = 0, checksum = 0;
    };
    struct Run {
        std::vector<Chunk> chunks;
        std::vector<std::byte> waiting;  ///< not yet written
    };
    [[nodiscard]] std::span<const std::byte> chunk_of(const Chunk& chunk);

    const StateBlocks& blocks_;
    std::vector<Run> runs_;
    std::optional<ScratchFile> file_;  ///< once there is something to write
    uint64_t written_ = 0;
    std::vector<std::byte> chunk_;
};

}  // namespace vocabpipe

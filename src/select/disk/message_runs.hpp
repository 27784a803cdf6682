// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/disk/scratch_file.hpp"
#include "src/select/disk/state_blocks.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace vocabpipe {

/// Messages to the blocks of a rank's state, or to parts of samples, in a file until their turn.
/// All have one size.
class MessageRuns {
public:
    MessageRuns(const StateBlocks& blocks, int64_t count);
    /// Memory of `count` blocks.
    [[nodiscard]] static uint64_t bytes(const StateBlocks& blocks, int64_t count) {
        return static_cast<uint64_t>(count + 1) * blocks.chunk_bytes;
    }

    template <typename Message>
    void add(int64_t block, const Message& message) {
        add_bytes(block, std::as_bytes(std::span(&message, 1)));
    }
    /// Calls use(messages) with those to a block, some at a time, in the order in which they were
    /// added.
    template <typename Message, typename Use>
    void read(int64_t block, const Use& use) {
        const Run& run = runs_[static_cast<size_t>(block)];
        for (const Chunk& chunk : run.chunks) use(messages_of<Message>(bytes_of(chunk)));
        if (!run.waiting.empty()) use(messages_of<Message>(run.waiting));
    }
    /// The message to a block with this number, from 0 on. Reads a chunk of the file unless the one
    /// before was in it, too.
    template <typename Message>
    [[nodiscard]] Message at(int64_t block, uint64_t number) {
        const Run& run = runs_[static_cast<size_t>(block)];
        const uint64_t of_each = std::max<uint64_t>(blocks_.chunk_bytes / sizeof(Message), 1);
        const uint64_t chunk = number / of_each;
        const std::span<const std::byte> bytes =
            chunk < run.chunks.size() ? bytes_of(run.chunks[chunk]) : run.waiting;
        return messages_of<Message>(bytes)[number % of_each];
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
    template <typename Message>
    [[nodiscard]] static std::span<const Message> messages_of(std::span<const std::byte> bytes) {
        // A vector's storage is aligned for any message.
        return {reinterpret_cast<const Message*>(bytes.data()), bytes.size() / sizeof(Message)};
    }
    void add_bytes(int64_t block, std::span<const std::byte> message);
    [[nodiscard]] std::span<const std::byte> bytes_of(const Chunk& chunk);

    StateBlocks blocks_;
    std::vector<Run> runs_;
    std::optional<ScratchFile> file_;  ///< once there is something to write
    uint64_t written_ = 0;
    std::vector<std::byte> chunk_;  ///< the one that was read last
    std::optional<uint64_t> chunk_offset_;
};

}  // namespace vocabpipe

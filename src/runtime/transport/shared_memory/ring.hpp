// SPDX-License-Identifier: Apache-2.0
// Messages from one rank to another through memory that both have mapped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace vocabpipe::shared_memory {

inline constexpr size_t kLine = 64;  ///< cache line: one per counter; frames fill whole lines

/// Bytes written and read since the beginning, in whole lines. Each counter is written by one rank
/// and has its own line.
struct RingCounters {
    alignas(kLine) std::atomic<uint64_t> written{0};
    alignas(kLine) std::atomic<uint64_t> read{0};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "two processes share them");

/// The sender's end. A message is a line with its size, then its bytes; it may be longer than the
/// ring, and continues as the reader makes room.
class RingWriter {
public:
    /// `bytes`: a power of two of at least two lines.
    RingWriter(RingCounters& counters, std::span<std::byte> bytes)
        : counters_(&counters), bytes_(bytes) {}

    /// Copies as much of `message` as there is room for, from byte `done` on, and advances `done`;
    /// true once all is written.
    [[nodiscard]] bool write(std::span<const std::byte> message, size_t& done);

private:
    /// Free bytes, at most `wanted`.
    [[nodiscard]] size_t room(size_t wanted);

    RingCounters* counters_;
    std::span<std::byte> bytes_;
    uint64_t written_ = 0;
    uint64_t read_seen_ = 0;
    bool in_message_ = false;
};

/// The receiver's end.
class RingReader {
public:
    RingReader(RingCounters& counters, std::span<const std::byte> bytes)
        : counters_(&counters), bytes_(bytes) {}

    /// Bytes of the present or next message; none: nothing has come.
    [[nodiscard]] std::optional<uint64_t> next();
    /// Copies the available bytes of the message of next() to `message`, which has its size, from
    /// byte `done` on, and advances `done`; true once all is read.
    [[nodiscard]] bool read(std::span<std::byte> message, size_t& done);

private:
    [[nodiscard]] size_t available(size_t wanted);

    RingCounters* counters_;
    std::span<const std::byte> bytes_;
    uint64_t read_ = 0;
    uint64_t written_seen_ = 0;
    std::optional<uint64_t> message_;
};

}  // namespace vocabpipe::shared_memory

// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/transport/shared_memory/ring.hpp"

#include <algorithm>
#include <cstring>

namespace vocabpipe::shared_memory {

namespace {

/// Bytes that one side copies before it updates its counter: small, so that both sides copy at the
/// same time, and data are still in a cache when the reader copies them.
constexpr size_t kChunk = size_t{16} << 10;

constexpr size_t whole_lines(size_t bytes) {
    return (bytes + kLine - 1) / kLine * kLine;
}

}  // namespace

size_t RingWriter::room(size_t wanted) {
    const size_t size = bytes_.size();
    if (size - (written_ - read_seen_) < wanted) {
        read_seen_ = counters_->read.load(std::memory_order_acquire);
    }
    return std::min(wanted, size - static_cast<size_t>(written_ - read_seen_));
}

bool RingWriter::write(std::span<const std::byte> message, size_t& done) {
    if (!in_message_) {
        if (room(kLine) < kLine) return false;
        const uint64_t size = message.size();
        std::memcpy(bytes_.data() + written_ % bytes_.size(), &size, sizeof size);
        written_ += kLine;  // published with the first bytes
        in_message_ = true;
    }
    while (done < message.size()) {
        const size_t at = written_ % bytes_.size();
        const size_t left = message.size() - done;
        const size_t most = std::min({whole_lines(left), kChunk, bytes_.size() - at});
        const size_t lines = room(most);
        if (lines == 0) break;
        const size_t copied = std::min(lines, left);
        std::memcpy(bytes_.data() + at, message.data() + done, copied);
        done += copied;
        written_ += lines;
        counters_->written.store(written_, std::memory_order_release);
    }
    if (done < message.size()) return false;
    if (message.empty()) counters_->written.store(written_, std::memory_order_release);
    in_message_ = false;
    return true;
}

size_t RingReader::available(size_t wanted) {
    if (written_seen_ - read_ < wanted) {
        written_seen_ = counters_->written.load(std::memory_order_acquire);
    }
    return std::min(wanted, static_cast<size_t>(written_seen_ - read_));
}

std::optional<uint64_t> RingReader::next() {
    if (message_ || available(kLine) < kLine) return message_;
    uint64_t size = 0;
    std::memcpy(&size, bytes_.data() + read_ % bytes_.size(), sizeof size);
    read_ += kLine;  // published with the first bytes
    return message_ = size;
}

bool RingReader::read(std::span<std::byte> message, size_t& done) {
    while (done < message.size()) {
        const size_t at = read_ % bytes_.size();
        const size_t left = message.size() - done;
        const size_t most = std::min({whole_lines(left), kChunk, bytes_.size() - at});
        const size_t lines = available(most);
        if (lines == 0) break;
        const size_t copied = std::min(lines, left);
        std::memcpy(message.data() + done, bytes_.data() + at, copied);
        done += copied;
        read_ += lines;
        counters_->read.store(read_, std::memory_order_release);
    }
    if (done < message.size()) return false;
    if (message.empty()) counters_->read.store(read_, std::memory_order_release);
    message_.reset();
    return true;
}

}  // namespace vocabpipe::shared_memory

// SPDX-License-Identifier: Apache-2.0
#include "src/select/disk/message_runs.hpp"

#include "src/support/crc32c.hpp"

namespace vocabpipe {

MessageRuns::MessageRuns(const StateBlocks& blocks, int64_t count)
    : blocks_(blocks), runs_(static_cast<size_t>(count)) {}

void MessageRuns::add_bytes(int64_t block, std::span<const std::byte> message) {
    Run& run = runs_[static_cast<size_t>(block)];
    if (!run.waiting.empty() && run.waiting.size() + message.size() > blocks_.chunk_bytes) {
        if (!file_) file_.emplace(blocks_.folder, 0);
        file_->write(written_, run.waiting);
        run.chunks.push_back({.offset = written_,
                              .bytes = static_cast<uint32_t>(run.waiting.size()),
                              .checksum = crc32c(run.waiting)});
        written_ += run.waiting.size();
        run.waiting.clear();
    }
    if (run.waiting.empty()) run.waiting.reserve(blocks_.chunk_bytes);
    run.waiting.insert(run.waiting.end(), message.begin(), message.end());
}

std::span<const std::byte> MessageRuns::bytes_of(const Chunk& chunk) {
    if (chunk_offset_ == chunk.offset) return chunk_;
    chunk_offset_.reset();
    chunk_.resize(chunk.bytes);
    file_->read(chunk.offset, chunk_);
    check_scratch(*file_, chunk_, chunk.checksum);
    chunk_offset_ = chunk.offset;
    return chunk_;
}

}  // namespace vocabpipe

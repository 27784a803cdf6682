// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "src/support/write_buffer.hpp"

namespace vocabpipe {

/// A file that is written for hours, under the name PATH.partial until it is complete. A process
/// that is killed leaves it there, and a later one goes on after the bytes that were durable. Each
/// failure is an OutputFileError with PATH and the reason; destroying an unpublished object removes
/// the file. While an object lives, the file is locked.
class PartialFile {
public:
    /// Opens PATH.partial and keeps its first `keep` bytes, which must be there. UsageError if
    /// another process is writing it; OutputFileError if PATH is a folder, a device or a pipe.
    explicit PartialFile(std::string path, int64_t keep = 0);
    ~PartialFile();
    PartialFile(const PartialFile&) = delete;
    PartialFile& operator=(const PartialFile&) = delete;

    /// The name of the file until it is complete.
    [[nodiscard]] static std::string name_of(const std::string& path) { return path + ".partial"; }

    /// Appends; buffered.
    void write(std::span<const std::byte> bytes) {
        durable_ = false;
        buffer_.write(file_, bytes);
    }

    /// Writes out the buffer and makes all bytes so far durable. Writing may go on.
    void sync();

    /// Writes out the buffer, then reads `out.size()` bytes from `offset` on, which must be there.
    void read(int64_t offset, std::span<std::byte> out);

    /// Makes all bytes durable and renames the file to PATH, replacing an older one. Write nothing
    /// afterwards.
    void publish();

    [[nodiscard]] const std::string& path() const { return buffer_.path(); }
    /// Bytes in the file and the buffer.
    [[nodiscard]] int64_t size() const { return buffer_.size(); }

private:
    void open();

    WriteBuffer buffer_;
    std::string name_;
    bool durable_ = false;  ///< nothing was written since sync()
    int file_ = -1;         ///< -1: published
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// Bytes on their way into a file, of which a MiB is written at a time. Failures are
/// OutputFileErrors.
class WriteBuffer {
public:
    /// `path` is the file in errors; it has `size` bytes before the first ones.
    explicit WriteBuffer(std::string path, int64_t size = 0);

    /// Appends, and writes full buffers to the open file.
    void write(int file, std::span<const std::byte> bytes);
    /// Writes out what is left.
    void flush(int file);

    [[nodiscard]] const std::string& path() const { return path_; }
    /// Bytes in the file and the buffer.
    [[nodiscard]] int64_t size() const { return size_; }

private:
    std::string path_;
    std::vector<std::byte> buffer_;
    int64_t size_ = 0;
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace vocabpipe {

/// A regular file that is read at given positions. Every failure, also that of a disk or of a file
/// that becomes shorter meanwhile, is an InputFileError; a mapped file would end the process.
class InputFile {
public:
    explicit InputFile(std::string path);
    ~InputFile();
    InputFile(InputFile&& other) noexcept;
    InputFile& operator=(InputFile&&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    /// Bytes, when it was opened.
    [[nodiscard]] uint64_t size() const { return size_; }
    /// Fills `to` from `offset` on. Threads may read at the same time.
    void read(uint64_t offset, std::span<std::byte> to) const;
    /// All of it.
    [[nodiscard]] std::string text() const;

private:
    std::string path_;
    int file_ = -1;
    uint64_t size_ = 0;
};

}  // namespace vocabpipe

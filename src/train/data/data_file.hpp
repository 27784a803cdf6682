// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "src/support/descriptor.hpp"

namespace vocabpipe {

/// A regular file for reading at any offset, not mapped: if others truncate it meanwhile, the read
/// throws an error with its name, where a mapping would end the process. It stays open, unless
/// three quarters of the files that the process may have open are: then it is opened for every
/// read, which takes microseconds, and is an error if it was replaced. Move-only; const functions
/// are safe from several threads.
class DataFile {
public:
    /// Throws InputFileError naming the file and the reason: missing, no permission, a folder.
    explicit DataFile(std::string path);

    [[nodiscard]] const std::string& path() const { return path_; }
    /// Size when it was opened.
    [[nodiscard]] uint64_t size() const { return size_; }

    /// Copies the bytes from `offset` on. InputFileError if the file has fewer or cannot be read.
    void read(uint64_t offset, std::span<std::byte> out) const;

    /// The first bytes, at most `count`.
    [[nodiscard]] std::vector<std::byte> head(size_t count) const;

    /// The little-endian value at `offset` bytes.
    template <class T>
    [[nodiscard]] T load(uint64_t offset) const {
        T value{};
        read(offset, std::as_writable_bytes(std::span(&value, 1)));
        return value;
    }

private:
    [[nodiscard]] Descriptor open_again() const;

    std::string path_;
    Descriptor file_;  // none: opened for every read
    uint64_t size_ = 0;
    uint64_t device_ = 0, inode_ = 0;  // of the file that was opened first
};

/// Walks over little-endian values that stand one after the other in a file, which must outlive it.
template <class T>
class FileArray {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    /// `count` values from `offset` bytes on.
    FileArray(const DataFile& file, uint64_t offset, uint64_t count)
        : file_(&file), offset_(offset), left_(count) {}

    /// Requires that a value is left.
    [[nodiscard]] T next() {
        if (at_ == block_.size()) fill();
        return block_[at_++];
    }

private:
    void fill() {
        constexpr uint64_t kBlock = 8192;
        block_.resize(static_cast<size_t>(std::min(left_, kBlock)));
        file_->read(offset_, std::as_writable_bytes(std::span(block_)));
        offset_ += block_.size() * sizeof(T);
        left_ -= block_.size();
        at_ = 0;
    }

    const DataFile* file_;
    uint64_t offset_, left_;
    std::vector<T> block_;
    size_t at_ = 0;
};

}  // namespace vocabpipe

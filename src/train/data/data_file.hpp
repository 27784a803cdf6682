// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace vocabpipe {

/// A regular file mapped read-only. Move-only; the mapping ends with the object.
/// The file must not shrink while it is mapped: touching a lost page is SIGBUS.
class MappedFile {
public:
    /// Throws InputFileError naming the file and the reason: missing, no permission, a folder.
    explicit MappedFile(std::string path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
    [[nodiscard]] uint64_t size() const { return size_; }

    /// The little-endian value at `offset` bytes, which may be misaligned. The caller checks
    /// bounds.
    template <class T>
    [[nodiscard]] T load(uint64_t offset) const {
        T value;
        std::memcpy(&value, data_ + offset, sizeof(T));
        return value;
    }

private:
    void unmap() noexcept;

    std::string path_;
    const std::byte* data_ = nullptr;
    uint64_t size_ = 0;
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/safetensors/format.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// The layout of a file, computed from names, types and shapes alone: the same on every rank, so
/// that all can write their rows at the same time.
class SafetensorsPlan {
public:
    /// `tensors`: name, type and shape; positions are decided here, by falling item size, then
    /// name.
    SafetensorsPlan(std::vector<StoredTensor> tensors,
                    const std::map<std::string, std::string>& metadata);

    /// All bytes before the data: length and JSON, padded to a multiple of 8.
    [[nodiscard]] const std::string& header() const { return header_; }
    [[nodiscard]] const std::vector<StoredTensor>& tensors() const { return tensors_; }
    [[nodiscard]] const StoredTensor& at(const std::string& name) const {
        return tensors_[index_.at(name)];
    }
    [[nodiscard]] bool has(const std::string& name) const { return index_.contains(name); }
    [[nodiscard]] uint64_t file_bytes() const { return file_bytes_; }

private:
    std::string header_;
    std::vector<StoredTensor> tensors_;
    std::map<std::string, size_t> index_;
    uint64_t file_bytes_ = 0;
};

/// A file that several processes write, each at its own offsets. Failures are OutputFileErrors.
class SharedOutputFile {
public:
    /// Creates the file, which must not exist, with `bytes` bytes.
    [[nodiscard]] static SharedOutputFile create(const std::string& path, uint64_t bytes);
    [[nodiscard]] static SharedOutputFile open(const std::string& path);
    ~SharedOutputFile();
    SharedOutputFile(SharedOutputFile&& other) noexcept;
    SharedOutputFile& operator=(SharedOutputFile&&) = delete;

    /// Sets the size to `bytes` and allocates the space, if the file system can, so that a full
    /// disk is noticed before the ranks write.
    void reserve(uint64_t bytes);
    void write_at(uint64_t offset, std::span<const std::byte> bytes);
    /// Makes the writes durable.
    void sync();

private:
    SharedOutputFile(std::string path, int flags);

    std::string path_;
    int file_ = -1;
};

/// Writes `text` into a new file, durably; it must not exist.
void write_new_file(const std::string& path, const std::string& text);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/disk/scratch_file.hpp"
#include "src/select/disk/state_blocks.hpp"
#include "src/support/crc32c.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// An array of zeros at first, of which one block is in memory and the others are in a file. An
/// access outside of the block replaces it, so accesses should ascend. With one block there is no
/// file.
template <typename T>
class BlockedArray {
public:
    /// `length`: elements of a block.
    BlockedArray(int64_t size, int64_t length, const std::string& folder)
        : size_(size), length_(std::min(size, length)) {
        if (length < size) {
            file_.emplace(folder, static_cast<uint64_t>(size) * sizeof(T));
            checksums_.resize(static_cast<size_t>((size + length - 1) / length));
        }
        resize(std::min(length_, size_));
    }
    BlockedArray(const BlockedArray&) = delete;
    BlockedArray& operator=(const BlockedArray&) = delete;

    [[nodiscard]] int64_t size() const { return size_; }
    [[nodiscard]] const T& operator[](int64_t at) const {
        if (!holds(at)) [[unlikely]]
            move_to(at);
        return elements_[at - begin_];
    }
    /// The elements from one on that are in its block. Valid until another block is accessed.
    [[nodiscard]] std::span<const T> rest_of_block(int64_t at) const {
        if (!holds(at)) move_to(at);
        return std::span<const T>(block_).subspan(static_cast<size_t>(at - begin_));
    }
    /// For writing.
    [[nodiscard]] T& edit(int64_t at) {
        if (!holds(at)) [[unlikely]]
            move_to(at);
        changed_ = true;
        return elements_[at - begin_];
    }
    /// Whether an access reads no file.
    [[nodiscard]] bool holds(int64_t at) const {
        return static_cast<uint64_t>(at - begin_) < count_;
    }

private:
    // Not inline: the loops of all phases stay short.
    [[gnu::noinline]] void move_to(int64_t at) const {
        if (changed_) {
            checksum_of(begin_) = crc32c(std::as_bytes(std::span(block_)));
            file_->write(offset(), std::as_bytes(std::span(block_)));
        }
        changed_ = false;
        begin_ = at / length_ * length_;
        resize(std::min(length_, size_ - begin_));
        if (const auto checksum = checksum_of(begin_)) {
            file_->read(offset(), std::as_writable_bytes(std::span(block_)));
            check_scratch(*file_, std::as_bytes(std::span(block_)), *checksum);
        } else {
            std::ranges::fill(block_, T{});
        }
    }
    void resize(int64_t count) const {
        block_.resize(static_cast<size_t>(count));
        elements_ = block_.data();
        count_ = block_.size();
    }
    [[nodiscard]] std::optional<uint32_t>& checksum_of(int64_t begin) const {
        return checksums_[static_cast<size_t>(begin / length_)];
    }
    [[nodiscard]] uint64_t offset() const { return static_cast<uint64_t>(begin_) * sizeof(T); }

    int64_t size_, length_;
    // Reading replaces the block, too.
    mutable std::optional<ScratchFile> file_;
    mutable std::vector<std::optional<uint32_t>> checksums_;  ///< of the blocks in the file
    mutable std::vector<T> block_;
    mutable T* elements_ = nullptr;  ///< of block_
    mutable int64_t begin_ = 0;
    mutable uint64_t count_ = 0;
    mutable bool changed_ = false;
};

}  // namespace vocabpipe

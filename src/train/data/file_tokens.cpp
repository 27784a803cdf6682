// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/file_tokens.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "src/train/data/check_range.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

constexpr size_t kBlockBytes = 32768;  // on the stack, and in the cache
constexpr size_t kNone = std::numeric_limits<size_t>::max();

/// Copies and widens or narrows; returns the index of the first value that is no int32, or kNone.
template <class T>
size_t copy_tokens(const std::byte* data, std::span<int32_t> out) {
    bool fits = true;
    for (size_t i = 0; i < out.size(); ++i) {
        T value;
        std::memcpy(&value, data + i * sizeof(T), sizeof(T));
        out[i] = static_cast<int32_t>(value);
        if constexpr (sizeof(T) == 8 || std::is_same_v<T, uint32_t>) {
            fits &= static_cast<int64_t>(value) == static_cast<int64_t>(out[i]);
        }
    }
    if (fits) {
        return kNone;
    }
    for (size_t i = 0; i < out.size(); ++i) {
        T value;
        std::memcpy(&value, data + i * sizeof(T), sizeof(T));
        if (!std::in_range<int32_t>(value)) {
            return i;
        }
    }
    return kNone;
}

size_t copy_tokens(TokenType type, const std::byte* data, std::span<int32_t> out) {
    switch (type) {
        case TokenType::u8:
            return copy_tokens<uint8_t>(data, out);
        case TokenType::i8:
            return copy_tokens<int8_t>(data, out);
        case TokenType::i16:
            return copy_tokens<int16_t>(data, out);
        case TokenType::i32:
            return copy_tokens<int32_t>(data, out);
        case TokenType::i64:
            return copy_tokens<int64_t>(data, out);
        case TokenType::u16:
            return copy_tokens<uint16_t>(data, out);
        case TokenType::u32:
            return copy_tokens<uint32_t>(data, out);
    }
    throw std::logic_error("unknown token type");
}

/// The value as stored, for a message.
std::string stored_value(TokenType type, const std::byte* data) {
    if (type == TokenType::u32) {
        uint32_t value = 0;
        std::memcpy(&value, data, sizeof value);
        return std::to_string(value);
    }
    int64_t value = 0;
    std::memcpy(&value, data, sizeof value);
    return std::to_string(value);
}

}  // namespace

void FileTokens::append(DataFile file, uint64_t offset, int64_t count) {
    const auto bytes = static_cast<uint64_t>(token_bytes(info_.type));
    if (count < 0 || offset > file.size() ||
        static_cast<uint64_t>(count) > (file.size() - offset) / bytes) {
        throw std::out_of_range("FileTokens::append: tokens outside of " + file.path());
    }
    info_.files.push_back(file.path());
    info_.bytes += static_cast<int64_t>(file.size());
    if (count == 0) {
        return;
    }
    segments_.push_back({std::move(file), offset, size_, count});
    size_ += count;
}

size_t FileTokens::segment_of(int64_t index) const {
    const auto after = std::upper_bound(segments_.begin(), segments_.end(), index,
                                        [](int64_t i, const Segment& s) { return i < s.first; });
    return static_cast<size_t>(after - segments_.begin()) - 1;
}

void FileTokens::read_segment(const Segment& segment, int64_t skip, std::span<int32_t> out) const {
    std::array<std::byte, kBlockBytes> stored;  // not initialised: it is read into
    const auto bytes = static_cast<size_t>(token_bytes(info_.type));
    while (!out.empty()) {
        const auto part = out.first(std::min(out.size(), kBlockBytes / bytes));
        segment.file.read(segment.offset + static_cast<uint64_t>(skip) * bytes,
                          std::span(stored).first(part.size() * bytes));
        const size_t bad = copy_tokens(info_.type, stored.data(), part);
        if (bad != kNone) {
            throw InputFileError(segment.file.path() + ": token " +
                                 std::to_string(skip + static_cast<int64_t>(bad)) + " is " +
                                 stored_value(info_.type, stored.data() + bad * bytes) +
                                 ", but token ids are 0 to 2147483647; the file is damaged or does "
                                 "not hold token ids");
        }
        skip += static_cast<int64_t>(part.size());
        out = out.subspan(part.size());
    }
}

void FileTokens::read(int64_t first, std::span<int32_t> out) const {
    check_range("FileTokens::read: tokens", first, out.size(), size_);
    for (size_t at = out.empty() ? 0 : segment_of(first); !out.empty(); ++at) {
        const Segment& segment = segments_[at];
        const int64_t skip = first - segment.first;
        const auto part = out.first(
            static_cast<size_t>(std::min(segment.count - skip, static_cast<int64_t>(out.size()))));
        read_segment(segment, skip, part);
        first += static_cast<int64_t>(part.size());
        out = out.subspan(part.size());
    }
}

TokenPlace FileTokens::place(int64_t index) const {
    check_range("FileTokens::place: tokens", index, 1, size_);
    const Segment& segment = segments_[segment_of(index)];
    return {segment.file.path(), index - segment.first};
}

}  // namespace vocabpipe

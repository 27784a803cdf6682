// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/utf8_check.hpp"

#include <cstring>

#include "src/train/text/text_file.hpp"

namespace vocabpipe {

namespace {

/// The bytes at the beginning of `text` that are ASCII and not zero, in whole words: most of a text
/// is such, and goes through eight bytes at a time.
size_t ascii_words(std::string_view text) {
    constexpr uint64_t kOnes = 0x0101010101010101;
    constexpr uint64_t kHighBits = 0x8080808080808080;
    size_t at = 0;
    for (uint64_t word = 0; at + sizeof word <= text.size(); at += sizeof word) {
        std::memcpy(&word, text.data() + at, sizeof word);
        // A borrow reaches a byte's high bit only from a zero in it or below it.
        if (((word | (word - kOnes)) & kHighBits) != 0) break;
    }
    return at;
}

}  // namespace

void Utf8Check::refuse(int64_t count) {
    if (count > 0 && first_invalid_ < 0) first_invalid_ = bytes_ - count;
    invalid_ += count;
    have_ = need_ = 0;
}

void Utf8Check::feed(std::string_view block) {
    for (size_t i = 0; i < block.size(); ++i) {
        if (need_ == 0) {
            const size_t ascii = ascii_words(block.substr(i));
            bytes_ += static_cast<int64_t>(ascii);
            i += ascii;
            if (i == block.size()) return;
        }
        const auto byte = static_cast<unsigned char>(block[i]);
        if (need_ > 0) {
            if (byte >= low_ && byte <= high_) {
                ++bytes_;
                low_ = 0x80;
                high_ = 0xbf;
                if (++have_ == need_) have_ = need_ = 0;
                continue;
            }
            refuse(have_);
        }
        ++bytes_;
        zeros_ += byte == 0 ? 1 : 0;
        if (byte < 0x80) continue;
        // Unicode's table of well-formed sequences: the second byte has the narrower ranges.
        need_ = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
        have_ = 1;
        low_ = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
        high_ = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
        if (byte < 0xc2 || byte > 0xf4) refuse(1);
    }
}

void Utf8Check::end() {
    refuse(have_);
}

void TextCheck::add(const std::string& path, const Utf8Check& file) {
    bytes += file.bytes();
    invalid += file.invalid();
    zeros += file.zeros();
    if (first.empty() && file.invalid() > 0) {
        first = path + " at byte " + std::to_string(file.first_invalid());
    }
}

TextCheck check_text_files(const std::vector<std::string>& paths) {
    TextCheck all;
    for (const std::string& path : paths) {
        Utf8Check one;
        read_text_file(path, [&](std::string_view block) { one.feed(block); });
        one.end();
        all.add(path, one);
    }
    return all;
}

}  // namespace vocabpipe

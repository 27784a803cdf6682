// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Counts the bytes of a text, block after block, that do not belong to a UTF-8 character.
class Utf8Check {
public:
    void feed(std::string_view block);
    /// Ends the text: counts a character that is cut off as invalid.
    void end();

    [[nodiscard]] int64_t bytes() const { return bytes_; }
    /// Bytes outside of characters. Overlong forms, surrogates and codes above U+10FFFF are
    /// invalid.
    [[nodiscard]] int64_t invalid() const { return invalid_; }
    /// Bytes of value 0, which text does not have.
    [[nodiscard]] int64_t zeros() const { return zeros_; }
    /// Offset of the first invalid byte; -1: none.
    [[nodiscard]] int64_t first_invalid() const { return first_invalid_; }

private:
    void refuse(int64_t count);

    int64_t bytes_ = 0, invalid_ = 0, zeros_ = 0, first_invalid_ = -1;
    int have_ = 0, need_ = 0;           // bytes of the current character
    unsigned char low_ = 0, high_ = 0;  // range of its next byte
};

/// Bytes of text files that are no text.
struct TextCheck {
    int64_t bytes = 0, invalid = 0, zeros = 0;
    std::string first;  ///< "FILE at byte 17"; empty: all of it is UTF-8

    /// Adds a file whose check has ended.
    void add(const std::string& path, const Utf8Check& file);
};
[[nodiscard]] TextCheck check_text_files(const std::vector<std::string>& paths);

}  // namespace vocabpipe

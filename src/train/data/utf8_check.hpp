// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Counts the bytes of a text, block after block, that are no part of a UTF-8 character.
class Utf8Check {
public:
    void feed(std::string_view block);
    /// The text is over: a character that it begins and does not end is none.
    void end();

    [[nodiscard]] int64_t bytes() const { return bytes_; }
    /// Bytes outside of characters. Overlong forms, surrogates and what is beyond U+10FFFF are no
    /// characters.
    [[nodiscard]] int64_t invalid() const { return invalid_; }
    /// Of value 0, which text does not have.
    [[nodiscard]] int64_t zeros() const { return zeros_; }
    /// Where the first invalid byte is; -1: nowhere.
    [[nodiscard]] int64_t first_invalid() const { return first_invalid_; }

private:
    void refuse(int64_t count);

    int64_t bytes_ = 0, invalid_ = 0, zeros_ = 0, first_invalid_ = -1;
    int have_ = 0, need_ = 0;           // of the character that has begun
    unsigned char low_ = 0, high_ = 0;  // of its next byte
};

/// What of some text files is no text.
struct TextCheck {
    int64_t bytes = 0, invalid = 0, zeros = 0;
    std::string first;  ///< "FILE at byte 17"; empty: all of it is UTF-8
};
[[nodiscard]] TextCheck check_text_files(const std::vector<std::string>& paths);

}  // namespace vocabpipe

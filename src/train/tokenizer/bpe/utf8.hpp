// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace vocabpipe {

/// U+FFFD, which takes the place of each byte that is not UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// The number of bytes of the character that begins at `text[at]`; 0: no valid one does. Overlong
/// forms, surrogates and codes above U+10FFFF are invalid.
[[nodiscard]] inline size_t character_bytes(std::string_view text, size_t at) {
    const auto byte = [&](size_t i) {
        return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
    };
    const auto follows = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
    const unsigned lead = byte(0);
    if (lead < 0x80) return 1;
    if (lead < 0xC2) return 0;
    if (lead < 0xE0) return follows(1) ? 2 : 0;
    // The second byte has a narrower range after some leads.
    const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (lead > 0xF4 || byte(1) < low || byte(1) > high || !follows(2)) return 0;
    if (lead < 0xF0) return 3;
    return follows(3) ? 4 : 0;
}

/// The number of bytes of a character, by its first byte; `text` must be valid UTF-8.
[[nodiscard]] inline size_t valid_character_bytes(char first) {
    const auto lead = static_cast<unsigned char>(first);
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/// The code of the valid character that begins at `text[at]`.
[[nodiscard]] inline int32_t character_code(std::string_view text, size_t at) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
    switch (valid_character_bytes(text[at])) {
        case 1:
            return byte(0);
        case 2:
            return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
        case 3:
            return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
        default:
            return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
                   (byte(3) & 0x3F);
    }
}

inline void append_character(std::string& text, int32_t code) {
    const auto tail = [&](int shift) {
        text.push_back(static_cast<char>(0x80 | (code >> shift & 0x3F)));
    };
    if (code < 0x80) {
        text.push_back(static_cast<char>(code));
    } else if (code < 0x800) {
        text.push_back(static_cast<char>(0xC0 | code >> 6));
        tail(0);
    } else if (code < 0x10000) {
        text.push_back(static_cast<char>(0xE0 | code >> 12));
        tail(6);
        tail(0);
    } else {
        text.push_back(static_cast<char>(0xF0 | code >> 18));
        tail(12);
        tail(6);
        tail(0);
    }
}

/// The end of the ASCII characters that begin at `text[at]`.
[[nodiscard]] inline size_t end_of_ascii(std::string_view text, size_t at) {
    for (; at + sizeof(uint64_t) <= text.size(); at += sizeof(uint64_t)) {
        uint64_t eight = 0;
        std::memcpy(&eight, text.data() + at, sizeof eight);
        if ((eight & 0x8080808080808080U) != 0) break;
    }
    while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
    return at;
}

/// The number of bytes before the first one that belongs to no character.
[[nodiscard]] inline size_t valid_utf8_bytes(std::string_view text) {
    for (size_t at = 0;;) {
        at = end_of_ascii(text, at);
        if (at == text.size()) return at;
        const size_t bytes = character_bytes(text, at);
        if (bytes == 0) return at;
        at += bytes;
    }
}

}  // namespace vocabpipe

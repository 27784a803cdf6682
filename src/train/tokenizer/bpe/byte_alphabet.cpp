// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/byte_alphabet.hpp"

#include "src/train/tokenizer/bpe/utf8.hpp"

#include <array>
#include <cstdint>

namespace vocabpipe {

namespace {

constexpr int32_t kFirstOther = 0x100;

constexpr bool is_printable(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
}

/// The bytes that are not printable, in order.
constexpr auto kOthers = [] {
    std::array<char, 68> others{};
    size_t count = 0;
    for (int byte = 0; byte < 256; ++byte) {
        if (!is_printable(byte)) others.at(count++) = static_cast<char>(byte);
    }
    return others;
}();

}  // namespace

std::optional<std::string> bytes_of_alphabet(std::string_view token) {
    std::string bytes;
    for (size_t at = 0; at < token.size(); at += valid_character_bytes(token[at])) {
        const int32_t code = character_code(token, at);
        if (code < kFirstOther && is_printable(code)) {
            bytes.push_back(static_cast<char>(code));
        } else if (code >= kFirstOther && code < kFirstOther + std::ssize(kOthers)) {
            bytes.push_back(kOthers.at(static_cast<size_t>(code - kFirstOther)));
        } else {
            return {};
        }
    }
    return bytes;
}

}  // namespace vocabpipe

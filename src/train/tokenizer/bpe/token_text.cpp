// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/token_text.hpp"

#include "src/train/tokenizer/bpe/byte_alphabet.hpp"

#include <charconv>
#include <cstdint>

namespace vocabpipe {

namespace {

std::string replace_all(const std::string& text, std::string_view from, std::string_view to) {
    std::string result;
    size_t at = 0;
    for (size_t found = text.find(from); found != std::string::npos; found = text.find(from, at)) {
        result.append(text, at, found - at).append(to);
        at = found + from.size();
    }
    return result.append(text, at);
}

/// The byte of <0x41>; -1: another token.
int fallback_byte(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    uint8_t byte = 0;
    const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
    return error == std::errc() && end == token.data() + 5 ? byte : -1;
}

}  // namespace

std::string TokenText::of(std::string_view token, bool first) const {
    if (alphabet) return bytes_of_alphabet(token).value_or(std::string(token));
    std::string text(token);
    if (first && !left_out_of_first.empty()) text = replace_all(text, left_out_of_first, "");
    for (const auto& [from, to] : replacements) text = replace_all(text, from, to);
    const int byte = byte_fallback ? fallback_byte(text) : -1;
    return byte < 0 ? text : std::string(1, static_cast<char>(byte));
}

std::string TokenText::whole(std::string joined) const {
    size_t begin = 0;
    for (size_t i = 0; i < strip_count && joined.compare(begin, strip_text.size(), strip_text) == 0;
         ++i) {
        begin += strip_text.size();
    }
    return joined.erase(0, begin);
}

}  // namespace vocabpipe

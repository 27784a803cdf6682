// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe {

/// How tokens become text again.
struct TokenText {
    bool alphabet = false;  ///< tokens in GPT-2's alphabet are bytes; others are themselves
    /// Texts that others take the place of, in order.
    std::vector<std::pair<std::string, std::string>> replacements;
    bool byte_fallback = false;  ///< <0x00> to <0xFF> are bytes
    /// A text that is left out wherever it occurs in the first token. Empty: nothing is.
    std::string left_out_of_first;
    /// At the beginning of the whole text, this many of these texts are left out.
    std::string strip_text;
    size_t strip_count = 0;

    /// The bytes of a token, which may be a part of a character.
    [[nodiscard]] std::string of(std::string_view token, bool first) const;
    /// The text of tokens whose bytes were joined.
    [[nodiscard]] std::string whole(std::string joined) const;
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/tokenizer/bpe/merges.hpp"
#include "src/train/tokenizer/bpe/token_ids.hpp"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Byte-pair encoding of single words: begins with an id for each byte or character, then merges.
class WordModel {
public:
    struct Options {
        /// Ids of words and parts of words: as bytes, or as characters of the text.
        TokenIds tokens;
        Merges merges;
        /// A word begins as bytes; false: as characters.
        bool bytes = false;
        /// A word that is a token is that token, whatever its merges.
        bool whole_words = false;
        /// A character without an id becomes the tokens <0x00> to <0xFF> of its bytes.
        bool byte_fallback = false;
        int32_t unknown = -1;       ///< id of what has no other; -1: it is left out
        bool fuse_unknown = false;  ///< neighbors without an id share one
    };
    explicit WordModel(Options options);

    /// Leaves the symbols of the word in `symbols`. `word`: not empty, valid UTF-8 unless a word
    /// begins as bytes. Their bytes add up to the word's, unless some are left out.
    void encode(std::string_view word, Merger& merger, std::vector<Symbol>& symbols) const;

    /// Whether the ids of a text that nothing cuts are those of its parts, cut where the character
    /// `mark` follows another one: no token that merges make has it there.
    [[nodiscard]] bool can_cut_before(std::string_view mark) const;

private:
    void add_character(std::string_view character, std::vector<Symbol>& symbols,
                       Symbol& unknown) const;

    Options options_;
    std::array<int32_t, 256> byte_ids_{};  ///< of single bytes, or of ASCII characters; -1: none
    std::array<int32_t, 256> fallback_{};  ///< of <0x00> to <0xFF>; -1: none
};

}  // namespace vocabpipe

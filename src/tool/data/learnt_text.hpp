// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/train/tokenizer/tokenizer.hpp"
#include "vocabpipe/token_source.hpp"

namespace vocabpipe::tool {

/// The text of a document, divided where learnt tokens and others meet.
struct LearntText {
    struct Part {
        std::string text;      ///< UTF-8, a character that a part cuts as "?"
        bool learnt = false;   ///< loss weights above 0
        bool special = false;  ///< the name of one token, which has no text
    };

    int64_t document = 0;
    int64_t tokens = 0;  ///< of the whole document
    int64_t learnt = 0;  ///< of these, those with a weight above 0
    std::vector<Part> parts;
    bool cut = false;  ///< the document goes on
};

/// The tokens [first, first + count) of `source`, which are document number `document`. Parts are
/// made of at most `most` tokens.
[[nodiscard]] LearntText learnt_text(const TokenSource& source, const Tokenizer& tokenizer,
                                     int64_t document, int64_t first, int64_t count, int64_t most);

/// The text for a terminal, without control characters but line ends; indented. Learnt parts are
/// underlined, or with `underline` false they stand between {+ and +}.
[[nodiscard]] std::string marked_lines(const LearntText& text, bool underline);

/// A page with the texts, learnt parts underlined. `data`: the name of the data set.
[[nodiscard]] std::string learnt_page(const std::string& data, const std::string& tokenizer,
                                      const std::vector<LearntText>& texts);

}  // namespace vocabpipe::tool

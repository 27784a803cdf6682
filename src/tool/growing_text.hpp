// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace vocabpipe::tool {

/// What of a text that grows token by token can be printed. A SentencePiece model decodes the first
/// bytes of a character that it has no piece for as U+FFFD until the last one is there.
class GrowingText {
public:
    /// `all`: the text so far. What to print after what was printed before.
    [[nodiscard]] std::string next(std::string_view all) {
        std::string_view sure = all;
        while (sure.ends_with(kReplacement)) sure.remove_suffix(kReplacement.size());
        return rest_of(sure);
    }
    /// The text's end: what is still incomplete, too.
    [[nodiscard]] std::string last(std::string_view all) { return rest_of(all); }

private:
    static constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

    /// What a tokenizer says differently of text already printed is left as it was.
    std::string rest_of(std::string_view text) {
        std::string rest(text.substr(std::min(printed_, text.size())));
        printed_ = std::max(printed_, text.size());
        return rest;
    }

    size_t printed_ = 0;  ///< bytes
};

}  // namespace vocabpipe::tool

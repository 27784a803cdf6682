// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace vocabpipe::tool {

/// Text that grows token by token. Time per token does not grow with the text: only the tokens
/// since the last whole word or character are decoded again. SentencePiece decodes the first bytes
/// of a character without a piece of its own as U+FFFD until the last byte is there.
class GrowingText {
public:
    using Decode = std::function<std::string(std::span<const int32_t>)>;

    explicit GrowingText(Decode decode) : decode_(std::move(decode)) {}

    /// The new text to print. `ids`: all tokens so far.
    [[nodiscard]] std::string next(std::span<const int32_t> ids) { return rest(ids, false); }
    /// The end of the text, even if it ends within a character.
    [[nodiscard]] std::string last(std::span<const int32_t> ids) { return rest(ids, true); }

private:
    static constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

    /// A tokenizer may decode a token differently at the beginning of a text, so decoding restarts
    /// at the last printed piece that is more than white space (SentencePiece drops leading white
    /// space).
    std::string rest(std::span<const int32_t> ids, bool incomplete) {
        const std::string before = decode_(ids.subspan(from_, printed_ - from_));
        const std::string all = decode_(ids.subspan(from_));
        if (all.size() <= before.size()) return {};
        if (!incomplete && std::string_view(all).ends_with(kReplacement)) return {};
        const std::string text = all.substr(before.size());
        if (text.find_first_not_of(" \t\r\n") != std::string::npos) from_ = printed_;
        printed_ = ids.size();
        return text;
    }

    Decode decode_;
    size_t from_ = 0;     ///< first token that is decoded again
    size_t printed_ = 0;  ///< tokens whose text was printed
};

}  // namespace vocabpipe::tool

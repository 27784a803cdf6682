// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace vocabpipe::tool {

/// Text that grows token by token: all parts together are what all tokens decode to. Time per token
/// does not grow with the text, because only the last tokens are decoded again. The last bytes of a
/// text may be the beginning of a character, which is held back until the others are there: as
/// bytes, or as U+FFFD, which is what SentencePiece makes of each of them until then.
class GrowingText {
public:
    using Decode = std::function<std::string(std::span<const int32_t>)>;

    explicit GrowingText(Decode decode) : decode_(std::move(decode)) {}

    /// The new text to print. `ids`: all tokens so far.
    [[nodiscard]] std::string next(std::span<const int32_t> ids) { return rest(ids, false); }
    /// The end of the text, even if it ends within a character.
    [[nodiscard]] std::string last(std::span<const int32_t> ids) { return rest(ids, true); }

private:
    /// The bytes at the end that may be the beginning of a character.
    static size_t unfinished(std::string_view text) {
        constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
        constexpr int kMost = 3;  // a character has at most four bytes
        size_t size = text.size();
        for (int i = 0; i < kMost && text.substr(0, size).ends_with(kReplacement); ++i) {
            size -= kReplacement.size();
        }
        if (size < text.size()) return text.size() - size;
        for (size_t back = 1; back <= kMost && back <= text.size(); ++back) {
            const auto byte = static_cast<unsigned char>(text[text.size() - back]);
            if (byte >= 0x80 && byte < 0xC0) continue;
            if (byte < 0xC2 || byte > 0xF4) return 0;  // begins no character of several bytes
            const size_t bytes = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
            return back < bytes ? back : 0;
        }
        return 0;
    }

    std::string rest(std::span<const int32_t> ids, bool last) {
        const std::string all = decode_(ids.subspan(from_));
        const size_t end = std::max(printed_, all.size() - (last ? 0 : unfinished(all)));
        std::string text = all.size() > printed_ ? all.substr(printed_, end - printed_) : "";
        printed_ = end;
        // A tokenizer may drop white space at the beginning of a text, and only there. So what
        // follows a token that has text at the beginning is decoded behind it as behind all tokens.
        if (!ids.empty() && end == all.size()) {
            const std::string one = decode_(ids.last(1));
            if (!one.empty()) {
                from_ = ids.size() - 1;
                printed_ = one.size();
            }
        }
        return text;
    }

    Decode decode_;
    size_t from_ = 0;     ///< first token that is decoded again
    size_t printed_ = 0;  ///< bytes of the text from there on that were printed
};

}  // namespace vocabpipe::tool

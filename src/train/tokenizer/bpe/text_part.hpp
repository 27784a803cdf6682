// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// A part of a text, maybe changed, that knows where its bytes come from. Views; owns nothing.
struct TextPart {
    std::string_view text;            ///< valid UTF-8
    const size_t* origins = nullptr;  ///< of each byte of `text`; null: `first`, `first` + 1, ...
    size_t first = 0;
    bool begins_text = true;  ///< nothing of the text comes before it

    /// The byte of the original text that byte `i` comes from; `i` < text.size().
    [[nodiscard]] size_t origin(size_t i) const {
        return origins == nullptr ? first + i : origins[i];
    }
    [[nodiscard]] TextPart sub(size_t begin, size_t end) const {
        return {.text = text.substr(begin, end - begin),
                .origins = origins == nullptr ? nullptr : origins + begin,
                .first = first + begin,
                .begins_text = begins_text && begin == 0};
    }
};

/// A text that is made from a part of another. Keeps its memory from use to use.
class ChangedText {
public:
    /// Without origins, those of new texts are not known, and making them takes less time.
    void keep_origins(bool keep) { with_origins_ = keep; }

    /// Forgets what it held and begins a copy of `from`, which stays alive until part().
    void start(const TextPart& from) {
        from_ = from;
        text_.clear();
        origins_.clear();
        copied_ = 0;
    }
    /// Puts `text` in the place of the bytes from `begin` to `end` of the source. Places increase.
    void replace(size_t begin, size_t end, std::string_view text) {
        copy_to(begin);
        copied_ = end;
        text_ += text;
        if (!with_origins_) return;
        // What is added at the end begins where the text ends.
        const size_t origin = begin < from_.text.size() ? from_.origin(begin)
                              : begin == 0              ? from_.first
                                                        : from_.origin(begin - 1) + 1;
        origins_.insert(origins_.end(), text.size(), origin);
    }
    /// The whole new text; the object owns it.
    [[nodiscard]] TextPart part() {
        copy_to(from_.text.size());
        return {.text = text_,
                .origins = with_origins_ ? origins_.data() : nullptr,
                .first = from_.first,
                .begins_text = from_.begins_text};
    }

private:
    void copy_to(size_t end) {
        text_ += from_.text.substr(copied_, end - copied_);
        for (size_t i = copied_; with_origins_ && i < end; ++i) {
            origins_.push_back(from_.origin(i));
        }
        copied_ = end;
    }

    bool with_origins_ = true;
    TextPart from_;
    std::string text_;
    std::vector<size_t> origins_;
    size_t copied_ = 0;
};

}  // namespace vocabpipe

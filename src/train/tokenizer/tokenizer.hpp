// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Text to token ids and back. Const functions are safe from several threads.
class Tokenizer {
public:
    virtual ~Tokenizer() = default;

    /// "bytes", "sentencepiece", "huggingface" or "tiktoken".
    [[nodiscard]] virtual std::string name() const = 0;
    /// All ids are in [0, vocab_size()).
    [[nodiscard]] virtual int64_t vocab_size() const = 0;
    /// The id that ends every document.
    [[nodiscard]] virtual int32_t end_of_document() const = 0;
    /// The id that published models were trained to see before every document; -1: none. `data
    /// prepare` does not write it.
    [[nodiscard]] virtual int32_t begin_of_document() const { return -1; }
    /// Appends the ids of `text` to `ids`.
    virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
    /// Appends the same ids, and for each of them the byte of `text` at which it begins. They never
    /// decrease. An id for a part of a character begins with the character or inside it; one for
    /// what is not in the text (a prefix) begins with what follows it.
    virtual void encode_with_begins(std::string_view text, std::vector<int32_t>& ids,
                                    std::vector<size_t>& begins) const = 0;
    /// Ids outside of the vocabulary and end_of_document() give no text.
    [[nodiscard]] virtual std::string decode(std::span<const int32_t> ids) const = 0;
    /// The name of an id of the vocabulary that gives no text, such as "<|im_end|>". Empty for any
    /// other id, and for one without a name.
    [[nodiscard]] virtual std::string special_name(int32_t id) const {
        (void)id;
        return {};
    }
};

}  // namespace vocabpipe

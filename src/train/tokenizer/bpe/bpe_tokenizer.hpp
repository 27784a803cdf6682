// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/tokenizer/bpe/added_tokens.hpp"
#include "src/train/tokenizer/bpe/text_steps.hpp"
#include "src/train/tokenizer/bpe/token_text.hpp"
#include "src/train/tokenizer/bpe/word_model.hpp"
#include "src/train/tokenizer/tokenizer.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace vocabpipe {

/// What a file says of a byte-pair tokenizer.
struct BpeDescription {
    std::string name;                ///< of the kind of file
    std::vector<std::string> texts;  ///< of every id, as the file writes it; empty: none has it
    WordModel::Options words;
    std::vector<AddedToken> added;
    std::vector<TextStep> normalizer;     ///< without Split
    std::vector<TextStep> pre_tokenizer;  ///< leaves the words
    TokenText decoder;
    int32_t begin_of_document = -1;
    int32_t end_of_document = -1;
};

/// Byte-pair encoding as Hugging Face's tokenizers does it: finds added tokens, special ones too,
/// normalizes what is between them, cuts it into words, and encodes each word. A byte that is not
/// UTF-8 counts as U+FFFD. decode() gives the bytes of tokens as they are, also where they make no
/// valid UTF-8, and nothing for special tokens.
class BpeTokenizer final : public Tokenizer {
public:
    explicit BpeTokenizer(BpeDescription description);
    ~BpeTokenizer() override;

    [[nodiscard]] std::string name() const override { return description_.name; }
    [[nodiscard]] int64_t vocab_size() const override { return std::ssize(description_.texts); }
    [[nodiscard]] int32_t end_of_document() const override { return description_.end_of_document; }
    [[nodiscard]] int32_t begin_of_document() const override {
        return description_.begin_of_document;
    }
    void encode(std::string_view text, std::vector<int32_t>& ids) const override;
    void encode_with_begins(std::string_view text, std::vector<int32_t>& ids,
                            std::vector<size_t>& begins) const override;
    [[nodiscard]] std::string decode(std::span<const int32_t> ids) const override;
    [[nodiscard]] std::string special_name(int32_t id) const override;

private:
    [[nodiscard]] bool is_special(int32_t id) const {
        return id == end_of_document() || special_[static_cast<size_t>(id)];
    }
    struct Memory;
    class MemoryPool;
    class Encoding;
    /// `begins`: null, if they are not asked for.
    void run(std::string_view text, std::vector<int32_t>& ids, std::vector<size_t>* begins) const;

    BpeDescription description_;
    WordModel words_;
    AddedTokens added_;             ///< found in the text as it is
    AddedTokens normalized_added_;  ///< found in the normalized text
    std::vector<bool> special_;     ///< of every id
    std::string cut_before_;        ///< where words may be cut further; empty: nowhere
    std::unique_ptr<MemoryPool> pool_;
};

}  // namespace vocabpipe

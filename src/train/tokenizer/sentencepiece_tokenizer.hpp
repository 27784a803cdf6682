// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "src/train/tokenizer/tokenizer.hpp"

namespace vocabpipe {

/// A SentencePiece model. Its end-of-document id is </s>, or else <|endoftext|> or <eod>.
class SentencePieceTokenizer final : public Tokenizer {
public:
    /// From the bytes of a .model file; `name` stands for the file in errors. InputFileError if
    /// they are no such model or it has no end-of-document piece.
    SentencePieceTokenizer(std::string_view model, const std::string& name);
    ~SentencePieceTokenizer() override;

    [[nodiscard]] std::string name() const override { return "sentencepiece"; }
    [[nodiscard]] int64_t vocab_size() const override;
    [[nodiscard]] int32_t end_of_document() const override;
    [[nodiscard]] int32_t begin_of_document() const override;  ///< <s>, as the model says
    void encode(std::string_view text, std::vector<int32_t>& ids) const override;
    void encode_with_begins(std::string_view text, std::vector<int32_t>& ids,
                            std::vector<size_t>& begins) const override;
    [[nodiscard]] std::string decode(std::span<const int32_t> ids) const override;
    [[nodiscard]] std::string special_name(int32_t id) const override;

private:
    struct Model;
    std::unique_ptr<Model> model_;
};

}  // namespace vocabpipe

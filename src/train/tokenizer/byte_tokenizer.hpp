// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/tokenizer/tokenizer.hpp"

namespace vocabpipe {

/// One id per byte, 256 for the end of a document: 257 ids, any input, no model file.
class ByteTokenizer final : public Tokenizer {
public:
    static constexpr int64_t kVocabSize = 257;
    static constexpr int32_t kEndOfDocument = 256;

    [[nodiscard]] std::string name() const override { return "bytes"; }
    [[nodiscard]] int64_t vocab_size() const override { return kVocabSize; }
    [[nodiscard]] int32_t end_of_document() const override { return kEndOfDocument; }
    void encode(std::string_view text, std::vector<int32_t>& ids) const override;
    void encode_with_begins(std::string_view text, std::vector<int32_t>& ids,
                            std::vector<size_t>& begins) const override;
    [[nodiscard]] std::string decode(std::span<const int32_t> ids) const override;
};

}  // namespace vocabpipe

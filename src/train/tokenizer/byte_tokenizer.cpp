// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/byte_tokenizer.hpp"

namespace vocabpipe {

void ByteTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
    const size_t before = ids.size();
    ids.resize(before + text.size());
    for (size_t i = 0; i < text.size(); ++i) {
        ids[before + i] = static_cast<unsigned char>(text[i]);
    }
}

void ByteTokenizer::encode_with_begins(std::string_view text, std::vector<int32_t>& ids,
                                       std::vector<size_t>& begins) const {
    encode(text, ids);
    for (size_t i = 0; i < text.size(); ++i) begins.push_back(i);
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
    std::string text;
    text.reserve(ids.size());
    for (const int32_t id : ids) {
        if (id >= 0 && id < kEndOfDocument) {
            text.push_back(static_cast<char>(id));
        }
    }
    return text;
}

}  // namespace vocabpipe

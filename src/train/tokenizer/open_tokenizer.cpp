// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/open_tokenizer.hpp"

#include "src/train/tokenizer/sentencepiece_tokenizer.hpp"

namespace vocabpipe {

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path) {
    return std::make_unique<SentencePieceTokenizer>(SentencePieceTokenizer::load(path));
}

}  // namespace vocabpipe

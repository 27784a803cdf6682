// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/train/text/text_input.hpp"

namespace vocabpipe {

struct SentencePieceTrainingOptions {
    int64_t vocab_size = 0;
    // Enough for a stable vocabulary; of larger inputs, lines are sampled deterministically.
    int64_t max_bytes = int64_t{64} << 20;
    // Limit for text that has no white space for thousands of bytes, and so no words: none of its
    // pieces occurs twice, and learning from it takes many times as long.
    int64_t max_unbroken_bytes = int64_t{1} << 19;
    // Whether lines of JSON without a document are left out, or an InputFileError.
    bool leave_out_bad_lines = false;
};

struct SentencePieceVocabulary {
    std::string model;              ///< the bytes of a .model file
    int64_t unbroken = 0;           ///< bytes of text without white space for thousands of bytes
    int64_t unbroken_left_out = 0;  ///< of these, beyond max_unbroken_bytes
};

/// Learns a byte-pair vocabulary of exactly vocab_size pieces from text files and returns the bytes
/// of a .model file. Ids: 0 unknown, 1 </s>, 256 single bytes, then learned pieces; text is kept as
/// it is, so decoding gives back valid UTF-8 byte for byte (except U+2581, which SentencePiece uses
/// for a space). Silent; the same input and size give the same model. UsageError with the smallest
/// or largest possible size if the text does not admit vocab_size pieces; InputFileError for
/// unreadable files.
[[nodiscard]] SentencePieceVocabulary train_sentencepiece(
    const std::vector<TextInput>& inputs, const SentencePieceTrainingOptions& options);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/train/prepare/text_chunk.hpp"
#include "src/train/text/text_input.hpp"
#include "src/train/tokenizer/tokenizer.hpp"

namespace vocabpipe {

/// The tokens of a chunk, in the order of its pieces.
struct EncodedChunk {
    /// A part of a document, or all of it.
    struct Piece {
        std::vector<int32_t> ids;    ///< with the id that ends a document, where it ends
        std::vector<float> weights;  ///< of the ids of a chat; else empty
        bool ends_document = false;
    };
    struct BadLine {
        int64_t line = 0;
        std::string reason;
    };
    std::vector<Piece> pieces;
    std::vector<BadLine> bad_lines;  ///< the first ten, which are printed
    int64_t bad_line_count = 0;      ///< all of them
};

/// Lines without a document that are named; the others are counted.
constexpr int64_t kNamedBadLines = 10;

/// Where a document becomes ids: parses lines of JSON and encodes texts. Documents without text are
/// left out. `poll` is called between pieces of at most about 1 MiB and may throw to end the work.
[[nodiscard]] EncodedChunk encode_chunk(const TextChunk& chunk, const TextInput& input,
                                        const Tokenizer& tokenizer,
                                        const std::function<void()>& poll);

}  // namespace vocabpipe

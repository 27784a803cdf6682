// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/train/text/utf8_check.hpp"

namespace vocabpipe {

/// A part of an input, of about 1 MiB or one line. Chunks are cut at the same places whatever the
/// number of workers, so a preparation can go on at any of them.
struct TextChunk {
    /// A line of JSON, the text of a row, or a piece of plain text.
    struct Piece {
        size_t end = 0;    ///< in `text`; it begins where the previous one ends
        int64_t line = 0;  ///< of JSON and rows: its number in the file, from 1
        bool ends_document = false;
        const char* bad = nullptr;  ///< why it has no document, where it is known already
    };

    size_t input = 0;  ///< index of the file
    std::string text;  ///< of all pieces
    std::vector<Piece> pieces;
    int64_t file_bytes = 0;  ///< of the file, read for this chunk
    bool ends_input = false;
    Utf8Check check;  ///< of a whole plain text, where the chunk ends its input
};

}  // namespace vocabpipe

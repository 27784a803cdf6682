// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace vocabpipe {

/// What the ends of documents inside a sample mean for training. The token that ends a document
/// belongs to it; the next one begins another.
struct DocumentMasks {
    int32_t end_of_document = -1;  ///< the token; not used without a mask
    bool ignore_next = false;      ///< --eod-mask-loss: no loss where a document's end is the input
    bool separate = false;         ///< --reset-attention-mask: a token sees its own document only
    bool reset_positions = false;  ///< --reset-position-ids: with `separate`, they begin anew
};

/// Labels whose input token is `end_of_document` become kIgnoredLabel: the first token of a
/// document does not follow from the one before it.
void ignore_after_ends(std::span<const int32_t> tokens, int32_t end_of_document,
                       std::span<int32_t> labels);

/// For every token of a sequence the first token of its document, as an index into the sequence
/// (Microbatch::first_visible).
void find_document_starts(std::span<const int32_t> tokens, int32_t end_of_document,
                          std::span<int32_t> first_visible);

}  // namespace vocabpipe

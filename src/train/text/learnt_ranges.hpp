// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace vocabpipe {

/// The bytes [begin, end) of a text, which are learnt.
struct LearntRange {
    size_t begin = 0;
    size_t end = 0;
};

/// Appends a loss weight for each token of a text of `text_bytes` bytes: 1 where the token and a
/// range have a byte in common, as the masks of transformers, else 0. `begins`: the byte at which
/// each token begins, as Tokenizer::encode_with_begins(); a token ends where the next one that
/// begins later does, or with the text. `ranges` are in order and do not overlap.
void append_learnt_weights(std::span<const size_t> begins, size_t text_bytes,
                           std::span<const LearntRange> ranges, std::vector<float>& weights);

}  // namespace vocabpipe

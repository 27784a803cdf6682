// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/tokenizer/bpe/merges.hpp"
#include "src/train/tokenizer/bpe/token_ids.hpp"

namespace vocabpipe {

/// The merges of tokenizers that list tokens by rank, as tiktoken does: any two tokens that make a
/// third one become it, the one of the lowest id first.
[[nodiscard]] Merges merges_of_ranks(const TokenIds& tokens);

}  // namespace vocabpipe

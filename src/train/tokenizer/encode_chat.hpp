// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "src/train/text/learnt_ranges.hpp"
#include "src/train/tokenizer/tokenizer.hpp"

namespace vocabpipe {

/// Appends the ids of a chat's text, encoded as a whole, and the loss weight of each: 1 for what is
/// learnt, else 0 (append_learnt_weights()). The id that ends documents follows, unless the text
/// ends with it; it is learnt where the id before it is, so that a model learns to stop.
void encode_chat(const Tokenizer& tokenizer, std::string_view text,
                 std::span<const LearntRange> learn, std::vector<int32_t>& ids,
                 std::vector<float>& weights);

}  // namespace vocabpipe

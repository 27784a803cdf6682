// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/encode_chat.hpp"

#include <cstddef>

namespace vocabpipe {

void encode_chat(const Tokenizer& tokenizer, std::string_view text,
                 std::span<const LearntRange> learn, std::vector<int32_t>& ids,
                 std::vector<float>& weights) {
    const size_t before = ids.size();
    std::vector<size_t> begins;
    tokenizer.encode_with_begins(text, ids, begins);
    append_learnt_weights(begins, text.size(), learn, weights);
    const int32_t end = tokenizer.end_of_document();
    if (ids.size() > before && ids.back() == end) return;
    const float last = ids.size() > before ? weights.back() : 0.0F;
    ids.push_back(end);
    weights.push_back(last);
}

}  // namespace vocabpipe

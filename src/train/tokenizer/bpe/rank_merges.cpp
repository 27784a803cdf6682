// SPDX-License-Identifier: Apache-2.0
#include "src/train/tokenizer/bpe/rank_merges.hpp"

#include <string_view>
#include <vector>

namespace vocabpipe {

Merges merges_of_ranks(const TokenIds& tokens) {
    struct Pair {
        int32_t left, right, both;
    };
    std::vector<Pair> pairs;
    tokens.for_each([&](std::string_view token, int32_t id) {
        for (size_t cut = 1; cut < token.size(); ++cut) {
            const int32_t left = tokens.find(token.substr(0, cut));
            const int32_t right = left < 0 ? -1 : tokens.find(token.substr(cut));
            if (right >= 0) pairs.push_back({left, right, id});
        }
    });
    Merges merges(pairs.size());
    for (const Pair& pair : pairs) {
        merges.add(pair.left, pair.right,
                   {.rank = static_cast<uint32_t>(pair.both), .id = pair.both});
    }
    return merges;
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/document_starts.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace vocabpipe {

std::vector<int64_t> document_starts(const TokenSource& source, int32_t end_of_document) {
    if (source.info().documents >= 0) {
        std::vector<int64_t> starts(static_cast<size_t>(source.info().documents) + 1);
        source.read_document_starts(0, starts);
        return starts;
    }
    constexpr int64_t kBlock = 1 << 15;  // tokens; 128 KiB stay in the cache
    std::vector<int64_t> starts{0};
    std::vector<int32_t> block(static_cast<size_t>(std::min(kBlock, source.size())));
    for (int64_t first = 0; first < source.size(); first += kBlock) {
        const auto part =
            std::span(block).first(static_cast<size_t>(std::min(kBlock, source.size() - first)));
        source.read(first, part);
        for (size_t i = 0; i < part.size(); ++i) {
            if (part[i] == end_of_document) starts.push_back(first + static_cast<int64_t>(i) + 1);
        }
    }
    if (starts.back() < source.size()) starts.push_back(source.size());
    return starts;
}

}  // namespace vocabpipe

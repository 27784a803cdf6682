// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/find_end_of_document.hpp"

#include <algorithm>
#include <vector>

namespace vocabpipe {

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 20;

}  // namespace

std::optional<int32_t> find_end_of_document(const TokenSource& source) {
    const TokenSourceInfo& info = source.info();
    if (info.end_of_document >= 0) return info.end_of_document;
    std::optional<int32_t> found;
    std::vector<int32_t> tokens;
    int64_t read = 0;
    for (int64_t d = 0; d < info.documents && read < kMostTokens; ++d) {
        const int64_t begin = source.document_start(d);
        const int64_t end = source.document_start(d + 1);
        if (begin == end) continue;
        // Read only the end of a huge document: more tokens of its middle tell nothing new.
        const int64_t first = std::max(begin, end - kMostTokens);
        tokens.resize(static_cast<size_t>(end - first));
        source.read(first, tokens);
        read += end - first;
        const int32_t last = tokens.back();
        if (found && *found != last) return std::nullopt;
        if (std::find(tokens.begin(), tokens.end() - 1, last) != tokens.end() - 1) {
            return std::nullopt;
        }
        found = last;
    }
    return found;
}

}  // namespace vocabpipe

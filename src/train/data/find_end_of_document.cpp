// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/find_end_of_document.hpp"

#include <algorithm>
#include <span>
#include <vector>

namespace vocabpipe {

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 20;
constexpr int64_t kTogether = int64_t{1} << 15;  // tokens of documents that are read at once
constexpr int64_t kMostDocuments = 256;          // whose starts are read at once

/// Looks at documents one after the other.
class EndOfDocuments {
public:
    /// Whether the token that ends the document ends those before it, too, and is inside of none.
    [[nodiscard]] bool agrees(std::span<const int32_t> document) {
        const int32_t last = document.back();
        if (found_ && *found_ != last) return false;
        found_ = last;
        return std::find(document.begin(), document.end() - 1, last) == document.end() - 1;
    }
    [[nodiscard]] std::optional<int32_t> found() const { return found_; }

private:
    std::optional<int32_t> found_;
};

}  // namespace

std::optional<int32_t> find_end_of_document(const TokenSource& source) {
    const TokenSourceInfo& info = source.info();
    if (info.end_of_document >= 0) return info.end_of_document;
    EndOfDocuments ends;
    std::vector<int64_t> starts;
    std::vector<int32_t> tokens;
    int64_t read = 0;
    // Starts of twice as many documents every time, as the first ones may be all that is needed.
    int64_t at_once = 1;
    for (int64_t d = 0; d < info.documents && read < kMostTokens; d += std::ssize(starts) - 1) {
        starts.resize(static_cast<size_t>(std::min(at_once, info.documents - d)) + 1);
        source.read_document_starts(d, starts);
        at_once = std::min(2 * at_once, kMostDocuments);
        for (size_t i = 0; i + 1 < starts.size() && read < kMostTokens;) {
            size_t end = i + 1;
            while (end + 1 < starts.size() && starts[end + 1] - starts[i] <= kTogether) ++end;
            // Only the end of a huge document: more tokens of its middle tell nothing new.
            const int64_t first = std::max(starts[i], starts[end] - kMostTokens);
            tokens.resize(static_cast<size_t>(starts[end] - first));
            source.read(first, tokens);
            for (; i < end && read < kMostTokens; ++i) {
                const int64_t begin = std::max(starts[i], first);
                const int64_t count = starts[i + 1] - begin;
                if (count == 0) continue;
                read += count;
                const auto document = std::span<const int32_t>(tokens).subspan(
                    static_cast<size_t>(begin - first), static_cast<size_t>(count));
                if (!ends.agrees(document)) return std::nullopt;
            }
        }
    }
    return ends.found();
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "src/select/knn/neighbour_rows.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe {

NeighbourRows::NeighbourRows(NearestLists lists) : lists_(std::move(lists)) {
    for (int64_t row = 0; row < lists_.rows(); ++row) {
        const size_t at = lists_.at(row);
        const std::span words = std::span(lists_.words_).subspan(at + 1, lists_.k_);
        // Not std::ranges::remove, which clang 14 does not compile.
        const auto end = std::remove(words.begin(), words.end(), NearestKey{0});
        for (auto key = words.begin(); key != end; ++key) {
            *key = row_entry(id_of(*key), similarity_of(*key));
        }
        std::sort(words.begin(), end);
        lists_.words_[at] = static_cast<uint64_t>(end - words.begin());
    }
}

bool NeighbourRows::contains(int64_t at, int64_t neighbour) const {
    const auto entries = row(at);
    const auto found = std::ranges::lower_bound(entries, row_entry(neighbour, 0));
    return found != entries.end() && neighbour_of(*found) == neighbour;
}

}  // namespace vocabpipe

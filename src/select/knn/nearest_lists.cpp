// SPDX-License-Identifier: Apache-2.0
#include "src/select/knn/nearest_lists.hpp"

#include <algorithm>
#include <functional>

namespace vocabpipe {

NearestLists::NearestLists(int64_t rows, int64_t k)
    : rows_(rows),
      k_(static_cast<size_t>(k)),
      words_(static_cast<size_t>(rows) * static_cast<size_t>(k + 1)) {}

NearestKey NearestLists::threshold(int64_t row) const {
    return std::max(words_[at(row)], words_[at(row) + 1]);
}

void NearestLists::offer(int64_t row, NearestKey key) {
    if (key <= threshold(row)) return;
    NearestKey* const heap = words_.data() + at(row) + 1;
    std::pop_heap(heap, heap + k_, std::greater<>());
    heap[k_ - 1] = key;
    std::push_heap(heap, heap + k_, std::greater<>());
}

void NearestLists::begin_beside(const NearestLists& known) {
    std::ranges::fill(words_, 0);
    for (int64_t row = 0; row < rows_; ++row) words_[at(row)] = known.threshold(row);
}

void NearestLists::take(const NearestLists& other) {
    for (int64_t row = 0; row < rows_; ++row) {
        for (const NearestKey key : other.row(row)) offer(row, key);
    }
}

}  // namespace vocabpipe

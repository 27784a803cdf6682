// SPDX-License-Identifier: Apache-2.0
#include "src/train/text/learnt_ranges.hpp"

namespace vocabpipe {

void append_learnt_weights(std::span<const size_t> begins, size_t text_bytes,
                           std::span<const LearntRange> ranges, std::vector<float>& weights) {
    size_t range = 0;
    for (size_t first = 0; first < begins.size();) {
        // The parts of a character that has no token of its own may begin at one byte.
        size_t behind = first;
        while (behind < begins.size() && begins[behind] == begins[first]) ++behind;
        const size_t end = behind < begins.size() ? begins[behind] : text_bytes;
        while (range < ranges.size() && ranges[range].end <= begins[first]) ++range;
        const bool learnt = range < ranges.size() && ranges[range].begin < end;
        weights.insert(weights.end(), behind - first, learnt ? 1.0F : 0.0F);
        first = behind;
    }
}

}  // namespace vocabpipe

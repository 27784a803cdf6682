// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/hash.hpp"
#include "src/select/select_context.hpp"
#include "src/select/selection_state.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Random parts of the open samples, whose sizes differ by at most one: samples in the order of
/// hash(seed, round, id), cut into slices. Every rank knows the ends of the slices, and so the part
/// of any sample, also of one that it does not own.
class Partition {
public:
    /// `open`: number on all ranks. Collective.
    Partition(SelectContext& context, const SelectionState& state, int64_t parts, int64_t open,
              int64_t round);

    [[nodiscard]] int64_t parts() const { return static_cast<int64_t>(begins_.size()) + 1; }
    [[nodiscard]] int64_t part_of(int64_t node) const {
        if (begins_.empty()) return 0;
        const uint64_t hash = splitmix64(seed_ ^ static_cast<uint64_t>(node));
        return std::ranges::upper_bound(begins_, hash) - begins_.begin();
    }
    /// Whether part_of(node) == part; needs no search for most samples.
    [[nodiscard]] bool has(int64_t part, int64_t node) const {
        const uint64_t hash = splitmix64(seed_ ^ static_cast<uint64_t>(node));
        const auto at = static_cast<size_t>(part);
        return (part == 0 || hash >= begins_[at - 1]) &&
               (at == begins_.size() || hash < begins_[at]);
    }
    /// Bytes of a rank, both during construction and afterwards.
    [[nodiscard]] static uint64_t bytes(int64_t parts);

private:
    uint64_t seed_;
    std::vector<uint64_t> begins_;  ///< the first hash of every part but the first
};

/// Keeps the `count` open samples that come first in the order of hash(seed, round, id), and
/// discards the others. `open`: number on all ranks, at least `count`. Collective.
void keep_at_random(SelectContext& context, SelectionState& state, int64_t count, int64_t open,
                    int64_t round);

}  // namespace vocabpipe

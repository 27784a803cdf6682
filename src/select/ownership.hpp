// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/world.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// The owner of each sample: ranges of ids in the order of the ranks.
class Ownership {
public:
    /// Ranges whose sizes differ by at most one.
    Ownership(int64_t nodes, int ranks);
    /// `begins`: of every rank's range, and the end of the last; from 0 on, ascending.
    explicit Ownership(std::vector<int64_t> begins);

    [[nodiscard]] int64_t nodes() const { return begins_.back(); }
    [[nodiscard]] int ranks() const { return static_cast<int>(begins_.size()) - 1; }
    [[nodiscard]] int64_t begin(int rank) const { return begins_[static_cast<size_t>(rank)]; }
    [[nodiscard]] int64_t end(int rank) const { return begin(rank + 1); }
    [[nodiscard]] int64_t count(int rank) const { return end(rank) - begin(rank); }
    /// Largest number of samples on a rank.
    [[nodiscard]] int64_t largest() const { return largest_; }
    [[nodiscard]] int owner_of(int64_t node) const {
        // No range is longer than the largest. Where all are alike, the owner is this rank or the
        // next.
        auto rank = static_cast<int>(node / largest_);
        while (node >= end(rank)) ++rank;
        return rank;
    }

private:
    std::vector<int64_t> begins_;
    int64_t largest_ = 0;
};

/// Replaces every element by the sum over all ranks (modulo 2^64). Collective.
void add_over_ranks(Communicator& world, std::vector<uint64_t>& values);
[[nodiscard]] int64_t sum_over_ranks(Communicator& world, int64_t value);
/// An integer for sums over all samples of values of 64 bits.
__extension__ using WideSum = __int128;
[[nodiscard]] WideSum wide_sum_over_ranks(Communicator& world, WideSum value);
[[nodiscard]] int64_t largest_over_ranks(Communicator& world, int64_t value);
/// Sum of the values of the ranks before this one.
[[nodiscard]] int64_t sum_of_ranks_before(Communicator& world, int64_t value);

}  // namespace vocabpipe

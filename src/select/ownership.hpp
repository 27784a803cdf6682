// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/world.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// The owner of each sample: ranges of ids in the order of the ranks, whose sizes differ by at most
/// one.
class Ownership {
public:
    Ownership(int64_t nodes, int ranks)
        : nodes_(nodes), ranks_(ranks), quotient_(nodes / ranks), rest_(nodes % ranks) {}

    [[nodiscard]] int64_t nodes() const { return nodes_; }
    [[nodiscard]] int ranks() const { return ranks_; }
    [[nodiscard]] int64_t begin(int rank) const {
        return rank * quotient_ + (rank < rest_ ? rank : rest_);
    }
    [[nodiscard]] int64_t end(int rank) const { return begin(rank + 1); }
    [[nodiscard]] int64_t count(int rank) const { return end(rank) - begin(rank); }
    /// Largest number of samples on a rank.
    [[nodiscard]] int64_t largest() const { return quotient_ + (rest_ > 0 ? 1 : 0); }
    [[nodiscard]] int owner_of(int64_t node) const {
        const int64_t of_larger = rest_ * (quotient_ + 1);
        return static_cast<int>(node < of_larger ? node / (quotient_ + 1)
                                                 : rest_ + (node - of_larger) / quotient_);
    }

private:
    int64_t nodes_;
    int ranks_;
    int64_t quotient_, rest_;
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/world.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Order statistics of 64-bit keys that are spread over ranks, exact: digit by digit from the top,
/// with one sum over ranks of 256 counters per digit and statistic. Every rank gives all its keys
/// once for each digit:
///
///     RadixSelect select({k});
///     while (!select.done()) {
///         for (const uint64_t key : keys) select.add(key);
///         select.next_digit(world);
///     }
///     select.results().front();
class RadixSelect {
public:
    /// `ranks`: 1 is the largest key, the number of all keys of all ranks the smallest; ascending
    /// or not.
    explicit RadixSelect(std::vector<int64_t> ranks);

    [[nodiscard]] bool done() const { return shift_ < 0; }
    void add(uint64_t key) {
        if (single_ && (key & mask_) != targets_.front().prefix) return;
        const size_t block = single_ ? 0 : block_of(key & mask_);
        if (block != kNone) ++counters_[block * 256 + (key >> shift_ & 0xFF)];
    }
    /// Collective.
    void next_digit(Communicator& world);
    /// The keys, in the order of `ranks`.
    [[nodiscard]] std::vector<uint64_t> results() const;

    /// Counters of so many statistics.
    [[nodiscard]] static constexpr uint64_t bytes(uint64_t statistics) {
        return statistics * 256 * sizeof(uint64_t);
    }

private:
    static constexpr size_t kNone = SIZE_MAX;
    struct Target {
        uint64_t prefix = 0;  ///< the digits known so far
        int64_t rank = 1;     ///< among the keys that begin with them
    };
    void begin_digit();
    [[nodiscard]] size_t block_of(uint64_t prefix) const;

    std::vector<Target> targets_;
    std::vector<uint64_t> prefixes_;  ///< those of the targets, ascending, each once
    std::vector<uint64_t> counters_;  ///< 256 for each prefix
    int shift_ = 56;
    uint64_t mask_ = 0;
    bool single_ = false;  ///< one prefix
};

/// A signed number as a key of the same order.
[[nodiscard]] constexpr uint64_t key_of(int64_t value) {
    return static_cast<uint64_t>(value) ^ (uint64_t{1} << 63);
}
[[nodiscard]] constexpr int64_t value_of(uint64_t key) {
    return static_cast<int64_t>(key ^ (uint64_t{1} << 63));
}

/// The k-th largest of the values of all ranks, of which there must be as many; `for_each(f)` calls
/// f(value) for those of this one. Collective.
template <typename ForEach>
[[nodiscard]] int64_t kth_largest(Communicator& world, int64_t k, const ForEach& for_each) {
    RadixSelect select({k});
    while (!select.done()) {
        for_each([&](int64_t value) { select.add(key_of(value)); });
        select.next_digit(world);
    }
    return value_of(select.results().front());
}

}  // namespace vocabpipe

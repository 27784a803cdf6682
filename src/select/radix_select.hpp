// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/world.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Exact order statistics of 64-bit keys that are spread over ranks: digit by digit from the top,
/// with one sum over ranks of 256 counters per digit and statistic. Every rank adds all its keys
/// once per digit:
///
///     RadixSelect select({k});
///     while (!select.done()) {
///         for (const uint64_t key : keys) select.add(key);
///         select.next_digit(world);
///     }
///     select.results().front();
class RadixSelect {
public:
    /// `ranks`: 1 is the largest key, the number of all keys of all ranks the smallest; in any
    /// order. `bits`: keys are below 2^bits; fewer bits take fewer digits.
    explicit RadixSelect(std::vector<int64_t> ranks, int bits = 64);

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

    /// Bytes of the counters of `statistics` statistics.
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
    std::vector<uint64_t> prefixes_;  ///< prefixes of the targets, ascending and distinct
    std::vector<uint64_t> counters_;  ///< 256 for each prefix
    int shift_;
    uint64_t mask_ = 0;
    bool single_ = false;  ///< all targets have one prefix
};

/// The smallest and the largest value; of_all(): over all ranks. Collective.
struct ValueRange {
    int64_t least = INT64_MAX, most = INT64_MIN;
    [[nodiscard]] ValueRange of_all(Communicator& world) const;
};

/// The k-th largest value over all ranks, which must have at least k; `for_each(f)` calls f(value)
/// for those of this rank. Collective.
template <typename ForEach>
[[nodiscard]] int64_t kth_largest(Communicator& world, int64_t k, const ForEach& for_each) {
    // Values lie far closer together than 64 bits allow: their distances have fewer digits.
    ValueRange range;
    for_each([&](int64_t value) {
        range.least = std::min(range.least, value);
        range.most = std::max(range.most, value);
    });
    range = range.of_all(world);
    const auto least = static_cast<uint64_t>(range.least);
    RadixSelect select({k},
                       static_cast<int>(std::bit_width(static_cast<uint64_t>(range.most) - least)));
    while (!select.done()) {
        for_each([&](int64_t value) { select.add(static_cast<uint64_t>(value) - least); });
        select.next_digit(world);
    }
    return static_cast<int64_t>(select.results().front() + least);
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "src/select/radix_select.hpp"

#include "src/select/ownership.hpp"

#include <algorithm>

namespace vocabpipe {

RadixSelect::RadixSelect(std::vector<int64_t> ranks, int bits) : shift_((bits + 7) / 8 * 8 - 8) {
    for (const int64_t rank : ranks) targets_.push_back({.rank = rank});
    if (targets_.empty()) shift_ = -8;
    begin_digit();
}

void RadixSelect::begin_digit() {
    prefixes_.clear();
    for (const Target& target : targets_) prefixes_.push_back(target.prefix);
    std::ranges::sort(prefixes_);
    prefixes_.erase(std::unique(prefixes_.begin(), prefixes_.end()), prefixes_.end());
    counters_.assign(prefixes_.size() * 256, 0);
    single_ = prefixes_.size() == 1;
}

size_t RadixSelect::block_of(uint64_t prefix) const {
    const auto found = std::ranges::lower_bound(prefixes_, prefix);
    if (found == prefixes_.end() || *found != prefix) return kNone;
    return static_cast<size_t>(found - prefixes_.begin());
}

void RadixSelect::next_digit(Communicator& world) {
    add_over_ranks(world, counters_);
    for (Target& target : targets_) {
        const size_t block = block_of(target.prefix) * 256;
        uint64_t digit = 255;
        while (digit > 0 && static_cast<int64_t>(counters_[block + digit]) < target.rank) {
            target.rank -= static_cast<int64_t>(counters_[block + digit]);
            --digit;
        }
        target.prefix |= digit << shift_;
    }
    mask_ |= uint64_t{0xFF} << shift_;
    shift_ -= 8;
    begin_digit();
}

ValueRange ValueRange::of_all(Communicator& world) const {
    // The minimum over ranks is the complement of the maximum of complements.
    return {.least = ~largest_over_ranks(world, ~least), .most = largest_over_ranks(world, most)};
}

std::vector<uint64_t> RadixSelect::results() const {
    std::vector<uint64_t> keys;
    for (const Target& target : targets_) keys.push_back(target.prefix);
    return keys;
}

}  // namespace vocabpipe

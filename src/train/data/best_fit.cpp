// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/best_fit.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace vocabpipe {

namespace {

constexpr uint32_t kNoBin = std::numeric_limits<uint32_t>::max();

/// Some of the numbers 0 .. limit - 1: a bit for each, and above them a bit for each word that has
/// one, and so on, so that the next number is found in a step per level.
class NumberSet {
public:
    explicit NumberSet(size_t limit) {
        do {
            limit = (limit + 63) / 64;
            levels_.emplace_back(limit);
        } while (limit > 1);
    }
    void insert(size_t number) {
        for (auto& level : levels_) {
            level[number / 64] |= uint64_t{1} << (number % 64);
            number /= 64;
        }
    }
    void erase(size_t number) {
        for (auto& level : levels_) {
            level[number / 64] &= ~(uint64_t{1} << (number % 64));
            if (level[number / 64] != 0) return;
            number /= 64;
        }
    }
    /// The smallest number of the set that is at least `number`; false: there is none.
    [[nodiscard]] bool find_from(size_t& number) const {
        for (size_t level = 0; level < levels_.size(); ++level) {
            const size_t word = number / 64;
            if (word >= levels_[level].size()) return false;
            const uint64_t rest = levels_[level][word] >> (number % 64);
            if (rest == 0) {
                number = word + 1;
                continue;
            }
            number += static_cast<size_t>(std::countr_zero(rest));
            while (level-- > 0) {
                number =
                    number * 64 + static_cast<size_t>(std::countr_zero(levels_[level][number]));
            }
            return true;
        }
        return false;
    }

private:
    std::vector<std::vector<uint64_t>> levels_;
};

/// The items from the largest to the smallest, equal ones in order.
std::vector<uint32_t> by_decreasing_size(std::span<const int32_t> sizes, int32_t capacity) {
    std::vector<size_t> next(static_cast<size_t>(capacity) + 1);  // [capacity - size]
    for (const int32_t size : sizes) {
        if (size < 1 || size > capacity) {
            throw std::invalid_argument("best_fit: sizes are from 1 to the capacity");
        }
        ++next[static_cast<size_t>(capacity - size) + 1];
    }
    std::partial_sum(next.begin(), next.end(), next.begin());
    std::vector<uint32_t> items(sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
        items[next[static_cast<size_t>(capacity - sizes[i])]++] = static_cast<uint32_t>(i);
    }
    return items;
}

/// The bin of every item, numbered as they are opened.
std::vector<uint32_t> bin_of_items(std::span<const int32_t> sizes,
                                   std::span<const int32_t> capacities) {
    const int32_t largest = capacities.back();
    std::vector<uint32_t> bin_of(sizes.size());
    // Bins with the same room are a list, from the one that got an item last.
    std::vector<uint32_t> first(static_cast<size_t>(largest) + 1, kNoBin);  // [room]
    std::vector<uint32_t> next;                                             // [bin]
    NumberSet rooms(first.size());
    for (const uint32_t item : by_decreasing_size(sizes, largest)) {
        const auto size = static_cast<size_t>(sizes[item]);
        auto bin = static_cast<uint32_t>(next.size());
        size_t room = size;
        if (rooms.find_from(room)) {
            bin = first[room];
            first[room] = next[bin];
            if (first[room] == kNoBin) rooms.erase(room);
        } else {
            room = static_cast<size_t>(*std::ranges::lower_bound(capacities, sizes[item]));
            next.push_back(kNoBin);
        }
        bin_of[item] = bin;
        room -= size;
        if (room == 0) continue;
        next[bin] = first[room];
        first[room] = bin;
        rooms.insert(room);
    }
    return bin_of;
}

}  // namespace

Bins best_fit(std::span<const int32_t> sizes, std::span<const int32_t> capacities) {
    if (sizes.size() >= kNoBin) throw std::invalid_argument("best_fit: less than 2^32 - 1 items");
    std::vector<uint32_t> bin_of = bin_of_items(sizes, capacities);
    Bins bins;
    std::vector<uint32_t> renumbered;  // [bin as it was opened]
    for (uint32_t& bin : bin_of) {
        if (bin >= renumbered.size()) renumbered.resize(size_t{bin} + 1, kNoBin);
        if (renumbered[bin] == kNoBin) {
            renumbered[bin] = static_cast<uint32_t>(bins.count());
            bins.begin.push_back(0);
        }
        bin = renumbered[bin];
        ++bins.begin[size_t{bin} + 1];
    }
    std::partial_sum(bins.begin.begin(), bins.begin.end(), bins.begin.begin());
    std::vector<int64_t> next(bins.begin.begin(), bins.begin.end() - 1);
    bins.items.resize(sizes.size());
    for (size_t i = 0; i < bin_of.size(); ++i) {
        bins.items[static_cast<size_t>(next[bin_of[i]]++)] = static_cast<uint32_t>(i);
    }
    return bins;
}

Bins one_each(size_t items) {
    Bins bins;
    bins.begin.resize(items + 1);
    std::iota(bins.begin.begin(), bins.begin.end(), int64_t{0});
    bins.items.resize(items);
    std::iota(bins.items.begin(), bins.items.end(), 0U);
    return bins;
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/microbatch_order.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/pass_times.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

/// Elements by turns from both ends: first, last, second, last but one, ...
std::vector<int> alternating(const std::vector<int>& sorted) {
    std::vector<int> order;
    for (size_t low = 0, high = sorted.size(); low < high;) {
        order.push_back(sorted[low++]);
        if (low < high) order.push_back(sorted[--high]);
    }
    return order;
}

/// The first elements at both ends, the last ones in the middle.
std::vector<int> first_at_ends(const std::vector<int>& sorted) {
    std::vector<int> order(sorted.size());
    size_t low = 0, high = sorted.size();
    for (size_t i = 0; i < sorted.size(); ++i) {
        order[i % 2 == 0 ? low++ : --high] = sorted[i];
    }
    return order;
}

class MicrobatchSearch {
public:
    /// `tries`: steps to time at most.
    MicrobatchSearch(const Schedule& schedule, PassCosts costs, int tries)
        : schedule_(schedule), costs_(std::move(costs)), tries_(tries) {}

    /// Goes downhill from this order: exchanges pairs until no exchange makes the step shorter.
    void descend(std::vector<int> order) {
        const size_t count = order.size();
        int64_t length = makespan(order);
        size_t in_vain = 0;  // pairs, one after the other
        for (size_t pair = 0; in_vain < count * count && tries_ > 0; ++pair, ++in_vain) {
            const size_t i = pair / count % count;
            const size_t j = pair % count;
            if (i >= j || order[i] == order[j]) continue;
            std::swap(order[i], order[j]);
            const int64_t other = makespan(order);
            if (other < length) {
                length = other;
                in_vain = 0;
            } else {
                std::swap(order[i], order[j]);
            }
        }
        if (!best_.empty() && length >= shortest_) return;
        best_ = std::move(order);
        shortest_ = length;
    }

    [[nodiscard]] std::vector<int> best() && { return std::move(best_); }

private:
    int64_t makespan(const std::vector<int>& order) {
        --tries_;
        costs_.lengths.of_microbatch = order;
        return time_passes(schedule_, costs_).makespan;
    }

    const Schedule& schedule_;
    PassCosts costs_;
    int tries_;
    std::vector<int> best_;
    int64_t shortest_ = 0;
};

}  // namespace

std::vector<int> order_microbatches(const Schedule& schedule, const PassCosts& costs,
                                    std::vector<int> lengths,
                                    const MicrobatchOrderOptions& options) {
    if (std::ssize(lengths) != schedule.microbatches) {
        throw UsageError("lengths are given for " + std::to_string(lengths.size()) +
                         " microbatches, but the schedule has " +
                         std::to_string(schedule.microbatches) + "; both must be equal");
    }
    std::ranges::sort(lengths);  // index 0 is the longest
    if (lengths.empty() || lengths.front() == lengths.back()) return lengths;
    const std::vector<int> descending(lengths.rbegin(), lengths.rend());
    MicrobatchSearch search(schedule, costs, options.tries);
    for (const std::vector<int>& sorted : {descending, lengths}) {
        search.descend(first_at_ends(sorted));
        search.descend(alternating(sorted));
        search.descend(sorted);
    }
    return std::move(search).best();
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/arrange_samples.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>

namespace vocabpipe {

namespace {

class Arrangement {
public:
    Arrangement(std::vector<int64_t> lengths, OrderLengths order)
        : lengths_(std::move(lengths)), order_(std::move(order)) {}

    std::vector<int> operator()(std::span<const int64_t> samples, int64_t per_microbatch) {
        std::vector<int> sorted(samples.size());
        std::iota(sorted.begin(), sorted.end(), 0);
        std::ranges::stable_sort(sorted, std::greater{},
                                 [&](int sample) { return samples[static_cast<size_t>(sample)]; });
        const auto size = static_cast<size_t>(per_microbatch);
        std::vector<int> multiset;  // [group of sorted samples], ascending indices
        for (size_t at = 0; at < sorted.size(); at += size) {
            multiset.push_back(index_of(samples[static_cast<size_t>(sorted[at])]));
        }
        // The groups of each length, in the order of their samples.
        std::map<int, size_t> next;
        for (size_t group = multiset.size(); group-- > 0;) next[multiset[group]] = group;
        std::vector<int> places;
        for (const int length : ordered(multiset)) {
            const auto first = static_cast<std::ptrdiff_t>(next.at(length)++ * size);
            places.insert(places.end(), sorted.begin() + first,
                          sorted.begin() + first + per_microbatch);
        }
        return places;
    }

private:
    [[nodiscard]] int index_of(int64_t length) const {
        const auto found = std::ranges::lower_bound(lengths_, length, std::greater{});
        if (found == lengths_.end() || *found != length) {
            throw std::invalid_argument("arrange_by_length: a sample has none of the lengths");
        }
        return static_cast<int>(found - lengths_.begin());
    }

    std::vector<int> ordered(const std::vector<int>& multiset) {
        constexpr size_t kKept = 256;  // steps are alike, so that few multisets occur
        const std::scoped_lock lock(mutex_);
        if (const auto found = kept_.find(multiset); found != kept_.end()) return found->second;
        if (kept_.size() == kKept) kept_.clear();
        return kept_[multiset] = order_(multiset);
    }

    const std::vector<int64_t> lengths_;
    const OrderLengths order_;
    std::mutex mutex_;  ///< of kept_
    std::map<std::vector<int>, std::vector<int>> kept_;
};

}  // namespace

ArrangeSamples arrange_by_length(std::vector<int64_t> lengths, OrderLengths order) {
    // A std::function is copied.
    const auto arrangement = std::make_shared<Arrangement>(std::move(lengths), std::move(order));
    return [arrangement](std::span<const int64_t> samples, int64_t per_microbatch) {
        return (*arrangement)(samples, per_microbatch);
    };
}

}  // namespace vocabpipe

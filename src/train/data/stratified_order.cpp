// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/stratified_order.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>

#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

/// Products of two numbers up to this stay within 64 bits.
constexpr int64_t kMostSamples = 3'000'000'000;

/// 1 / golden ratio, in parts of 2^32.
constexpr int64_t kGolden = 2'654'435'769;

}  // namespace

StratifiedOrder::StratifiedOrder(const std::vector<int64_t>& counts, uint64_t seed, bool shuffle)
    : first_{0}, seed_(seed), shuffle_(shuffle) {
    for (size_t kind = 0; kind < counts.size(); ++kind) {
        within_.emplace_back(counts[kind], counts.size() == 1 ? seed : derived_seed(seed, kind),
                             shuffle);
        first_.push_back(first_.back() + counts[kind]);
    }
    const int64_t samples = first_.back();
    if (samples > kMostSamples) {
        throw UsageError("--length-buckets: the data have " + std::to_string(samples) +
                         " samples, but at most " + std::to_string(kMostSamples) +
                         " can be ordered by length; use one length");
    }
    stride_ = std::max<int64_t>(1, (samples * kGolden) >> 32);
    while (std::gcd(stride_, samples) != 1) ++stride_;
}

int64_t StratifiedOrder::operator()(int64_t index) const {
    const int64_t samples = first_.back();
    const int64_t epoch = index / samples;
    const int64_t position = index % samples;
    if (!shuffle_) return position;
    if (within_.size() == 1) return within_.front()(index);
    const auto begin = static_cast<int64_t>(derived_seed(seed_, static_cast<uint64_t>(epoch)) %
                                            static_cast<uint64_t>(samples));
    const int64_t number = (position * stride_ + begin) % samples;
    const auto kind =
        static_cast<size_t>(std::ranges::upper_bound(first_, number) - first_.begin() - 1);
    const int64_t of_kind = first_[kind + 1] - first_[kind];
    return first_[kind] + within_[kind](epoch * of_kind + number - first_[kind]);
}

}  // namespace vocabpipe

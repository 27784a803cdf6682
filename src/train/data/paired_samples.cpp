// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/paired_samples.hpp"

#include "vocabpipe/error.hpp"

#include <map>
#include <utility>

namespace vocabpipe {

PairedSamples::PairedSamples(std::unique_ptr<const SampleSource> in_order, uint64_t seed,
                             bool shuffle, bool several_lengths)
    : samples_(std::move(in_order)), order_({1}, seed) {
    const int64_t samples = samples_->samples_per_epoch();
    if (samples % 2 != 0) {
        throw InputFileError("the training data has " + std::to_string(samples) +
                             " samples, but they are pairs, the better answer first; leave out "
                             "the one that has no other");
    }
    std::vector<int64_t> counts{samples / 2};
    if (shuffle && several_lengths) {
        std::map<std::pair<int64_t, int64_t>, std::vector<uint32_t>> pairs;
        for (int64_t i = 0; i < samples; i += 2) {
            pairs[{samples_->length(i), samples_->length(i + 1)}].push_back(
                static_cast<uint32_t>(i / 2));
        }
        counts.clear();
        for (const auto& [lengths, alike] : pairs) {
            counts.push_back(std::ssize(alike));
            by_lengths_.insert(by_lengths_.end(), alike.begin(), alike.end());
        }
    }
    order_ = StratifiedOrder(counts, seed, shuffle);
}

}  // namespace vocabpipe

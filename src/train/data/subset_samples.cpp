// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/subset_samples.hpp"

#include <utility>

namespace vocabpipe {

SubsetSamples::SubsetSamples(std::unique_ptr<const SampleSource> all,
                             std::shared_ptr<const SampleChoice> choice, const Options& options)
    : all_(std::move(all)),
      choice_(std::move(choice)),
      options_(options),
      order_(options.count, options.seed, options.shuffle) {}

void SubsetSamples::fill(int64_t index, Sample& out) const {
    const int64_t chosen = choice_->sample(options_.first_position + order_(index));
    all_->sample(chosen - options_.first_sample, out);
}

}  // namespace vocabpipe

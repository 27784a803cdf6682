// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/paired_samples.hpp"

#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

int64_t count_pairs(int64_t samples) {
    if (samples % 2 == 0) return samples / 2;
    throw InputFileError("the training data has " + std::to_string(samples) +
                         " samples, but they are pairs, the better answer first; leave out the one "
                         "that has no other");
}

}  // namespace

PairedSamples::PairedSamples(std::unique_ptr<const SampleSource> in_order, uint64_t seed,
                             bool shuffle)
    : samples_(std::move(in_order)),
      pairs_(count_pairs(samples_->samples_per_epoch())),
      order_(pairs_, seed, shuffle) {}

}  // namespace vocabpipe

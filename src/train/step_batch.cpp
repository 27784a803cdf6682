// SPDX-License-Identifier: Apache-2.0
#include "src/train/step_batch.hpp"

#include <algorithm>

namespace vocabpipe {

StepBatch::StepBatch(const SampleSource& samples, const StepBatchOptions& options)
    : samples_(samples),
      options_(options),
      sample_(static_cast<size_t>(samples.seq_length()) + 1) {}

void StepBatch::set_microbatches(int microbatches) {
    if (microbatches_.size() == static_cast<size_t>(microbatches)) return;
    const int64_t length = samples_.seq_length();
    const auto per_microbatch = static_cast<size_t>(options_.micro_batch_size * length);
    const size_t total = per_microbatch * static_cast<size_t>(microbatches);
    tokens_.resize(total);
    labels_.resize(total);
    loss_gradient_.resize(total);
    microbatches_.clear();
    for (int j = 0; j < microbatches; ++j) {
        const size_t at = static_cast<size_t>(j) * per_microbatch;
        microbatches_.push_back(
            {.index = j,
             .sequences = options_.micro_batch_size,
             .seq_length = length,
             .tokens = std::span(tokens_).subspan(at, per_microbatch),
             .labels = std::span(labels_).subspan(at, per_microbatch),
             .loss_gradient = std::span(loss_gradient_).subspan(at, per_microbatch),
             .first_visible = {}});
    }
}

void StepBatch::load(int64_t first_sample, int microbatches) {
    set_microbatches(microbatches);
    const int64_t length = samples_.seq_length();
    const int64_t rows = options_.micro_batch_size;
    for (int64_t row = 0; row < rows * microbatches; ++row) {
        const int64_t microbatch = row / rows * options_.replicas + options_.replica;
        samples_.sample(first_sample + microbatch * rows + row % rows, sample_);
        std::copy_n(sample_.begin(), length, tokens_.begin() + row * length);
        std::copy_n(sample_.begin() + 1, length, labels_.begin() + row * length);
    }
    // No label is ignored: check_tokens() refuses negative ids.
    counted_tokens_ = global_batch_size() * length;
    std::fill(loss_gradient_.begin(), loss_gradient_.end(),
              1.0F / static_cast<float>(counted_tokens_));
}

}  // namespace vocabpipe

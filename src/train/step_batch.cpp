// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/step_batch.hpp"

#include <algorithm>

namespace vocabpipe {

StepBatch::StepBatch(const TokenDataset& dataset, int64_t micro_batch_size, int microbatches)
    : dataset_(dataset), micro_batch_size_(micro_batch_size) {
    const auto per_microbatch = static_cast<size_t>(micro_batch_size * dataset.seq_length());
    const size_t total = per_microbatch * static_cast<size_t>(microbatches);
    tokens_.resize(total);
    labels_.resize(total);
    loss_gradient_.resize(total);
    sample_.resize(static_cast<size_t>(dataset.seq_length()) + 1);
    for (int j = 0; j < microbatches; ++j) {
        const size_t at = static_cast<size_t>(j) * per_microbatch;
        microbatches_.push_back(
            {.index = j,
             .sequences = micro_batch_size,
             .seq_length = dataset.seq_length(),
             .tokens = std::span(tokens_).subspan(at, per_microbatch),
             .labels = std::span(labels_).subspan(at, per_microbatch),
             .loss_gradient = std::span(loss_gradient_).subspan(at, per_microbatch)});
    }
}

void StepBatch::load(int64_t first_sample) {
    const int64_t samples = global_batch_size();
    const int64_t length = dataset_.seq_length();
    for (int64_t i = 0; i < samples; ++i) {
        dataset_.sample(first_sample + i, sample_);
        std::copy_n(sample_.begin(), length, tokens_.begin() + i * length);
        std::copy_n(sample_.begin() + 1, length, labels_.begin() + i * length);
    }
    counted_tokens_ =
        std::count_if(labels_.begin(), labels_.end(), [](int32_t label) { return label >= 0; });
    const float g = counted_tokens_ == 0 ? 0.0F : 1.0F / static_cast<float>(counted_tokens_);
    std::transform(labels_.begin(), labels_.end(), loss_gradient_.begin(),
                   [g](int32_t label) { return label >= 0 ? g : 0.0F; });
}

}  // namespace vocabpipe

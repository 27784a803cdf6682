// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/step_batch.hpp"

#include <algorithm>

namespace vocabpipe {

StepBatch::StepBatch(const SampleSource& samples, const StepBatchOptions& options)
    : samples_(samples),
      options_(options),
      cut_(samples.seq_length(), options.context_rank, options.context),
      sample_(static_cast<size_t>(samples.seq_length()) + 1),
      sample_labels_(static_cast<size_t>(samples.seq_length())),
      sample_starts_(sample_labels_.size()) {}

void StepBatch::set_microbatches(int microbatches) {
    if (microbatches_.size() == static_cast<size_t>(microbatches)) return;
    const int64_t length = cut_.own_length();
    const auto per_microbatch = static_cast<size_t>(options_.micro_batch_size * length);
    const size_t total = per_microbatch * static_cast<size_t>(microbatches);
    tokens_.resize(total);
    labels_.resize(total);
    loss_gradient_.resize(total);
    if (options_.masks.separate) first_visible_.resize(total);
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
             .first_visible = options_.masks.separate
                                  ? std::span(first_visible_).subspan(at, per_microbatch)
                                  : std::span<int32_t>()});
    }
}

int64_t StepBatch::fill(int j, int64_t first) {
    const DocumentMasks& masks = options_.masks;
    const auto length = static_cast<size_t>(samples_.seq_length());
    const auto own_length = static_cast<size_t>(cut_.own_length());
    const auto rows = static_cast<size_t>(options_.micro_batch_size);
    int64_t counted = options_.micro_batch_size * samples_.seq_length();
    for (size_t row = 0; row < rows; ++row) {
        samples_.sample(first + static_cast<int64_t>(row), sample_);
        const auto tokens = std::span<const int32_t>(sample_).first(length);
        std::copy(sample_.begin() + 1, sample_.end(), sample_labels_.begin());
        if (masks.ignore_next) {
            counted -= ignore_after_ends(tokens, masks.end_of_document, sample_labels_);
        }
        const size_t at = (static_cast<size_t>(j) * rows + row) * own_length;
        const auto take = [&](std::span<const int32_t> whole, std::vector<int32_t>& own) {
            cut_.take(whole, std::span(own).subspan(at, own_length));
        };
        take(tokens, tokens_);
        take(sample_labels_, labels_);
        if (masks.separate) {
            find_document_starts(tokens, masks.end_of_document, sample_starts_);
            take(sample_starts_, first_visible_);
        }
    }
    return counted;
}

int64_t StepBatch::count(int64_t first) {
    const int64_t length = samples_.seq_length();
    int64_t counted = options_.micro_batch_size * length;
    // Without a mask every label counts: check_tokens() refuses negative ids.
    if (!options_.masks.ignore_next) return counted;
    for (int64_t row = 0; row < options_.micro_batch_size; ++row) {
        samples_.sample(first + row, sample_);
        counted -= std::count(sample_.begin(), sample_.end() - 1, options_.masks.end_of_document);
    }
    return counted;
}

void StepBatch::load(int64_t first_sample, int microbatches) {
    set_microbatches(microbatches);
    counted_tokens_ = 0;
    std::vector<int64_t> counted_in(microbatches_.size());
    int64_t first = first_sample;
    for (int j = 0; j < microbatches; ++j) {
        for (int replica = 0; replica < options_.replicas; ++replica) {
            const bool own = replica == options_.replica;
            const int64_t counted = own ? fill(j, first) : count(first);
            if (own) counted_in[static_cast<size_t>(j)] = counted;
            counted_tokens_ += counted;
            first += options_.micro_batch_size;
        }
    }
    const float g = counted_tokens_ == 0 ? 0.0F : 1.0F / static_cast<float>(counted_tokens_);
    std::transform(labels_.begin(), labels_.end(), loss_gradient_.begin(),
                   [g](int32_t label) { return label >= 0 ? g : 0.0F; });
    if (options_.context == 1) return;  // a microbatch has the tokens that its weight counts
    for (size_t j = 0; j < counted_in.size(); ++j) {
        microbatches_[j].loss_weight = static_cast<double>(counted_in[j]) * double{g};
    }
}

}  // namespace vocabpipe

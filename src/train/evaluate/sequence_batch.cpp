// SPDX-License-Identifier: Apache-2.0
#include "src/train/evaluate/sequence_batch.hpp"

#include "vocabpipe/document_masks.hpp"

#include <algorithm>

namespace vocabpipe {

SequenceBatch::SequenceBatch(const EvaluationShape& shape, int rank)
    : shape_(shape),
      replica_(shape.mesh.replica(rank)),
      cut_(shape.seq_length, shape.mesh.place(rank).context, shape.mesh.context),
      whole_tokens_(static_cast<size_t>(shape.seq_length)),
      whole_labels_(whole_tokens_.size()),
      whole_first_visible_(shape.separate_documents ? whole_tokens_.size() : 0) {
    const auto per_microbatch = static_cast<size_t>(shape.micro_batch_size * cut_.own_length());
    const size_t total = per_microbatch * static_cast<size_t>(shape.microbatches);
    tokens_.resize(total);
    labels_.resize(total);
    if (shape.separate_documents) first_visible_.resize(total);
    counted_.resize(total);
    for (int j = 0; j < shape.microbatches; ++j) {
        const size_t at = static_cast<size_t>(j) * per_microbatch;
        microbatches_.push_back(
            {.index = j,
             .sequences = shape.micro_batch_size,
             .seq_length = cut_.own_length(),
             .tokens = std::span(tokens_).subspan(at, per_microbatch),
             .labels = std::span(labels_).subspan(at, per_microbatch),
             .loss_gradient = std::span(counted_).subspan(at, per_microbatch),
             .first_visible = shape.separate_documents
                                  ? std::span(first_visible_).subspan(at, per_microbatch)
                                  : std::span<int32_t>()});
    }
}

void SequenceBatch::load(int64_t first, int64_t count, const FillSequence& fill) {
    const auto own_length = static_cast<size_t>(cut_.own_length());
    for (int64_t row = 0; row < shape_.sequences_per_replica(); ++row) {
        std::ranges::fill(whole_tokens_, 0);
        std::ranges::fill(whole_labels_, kIgnoredLabel);
        std::ranges::fill(whole_first_visible_, 0);
        const int64_t sequence = shape_.sequence_of(first, row, replica_);
        if (sequence < count) {
            fill(sequence, {whole_tokens_, whole_labels_, whole_first_visible_});
        }
        const auto take = [&](const std::vector<int32_t>& whole, std::vector<int32_t>& own) {
            if (whole.empty()) return;
            const auto part =
                std::span(own).subspan(static_cast<size_t>(row) * own_length, own_length);
            cut_.take(std::span<const int32_t>(whole), part);
        };
        take(whole_tokens_, tokens_);
        take(whole_labels_, labels_);
        take(whole_first_visible_, first_visible_);
    }
    std::transform(labels_.begin(), labels_.end(), counted_.begin(),
                   [](int32_t label) { return label >= 0 ? 1.0F : 0.0F; });
}

int64_t SequenceBatch::counted(int64_t row) const {
    const auto labels = labels_.begin() + row * cut_.own_length();
    return std::count_if(labels, labels + cut_.own_length(),
                         [](int32_t label) { return label >= 0; });
}

}  // namespace vocabpipe

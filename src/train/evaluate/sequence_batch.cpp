// SPDX-License-Identifier: Apache-2.0
#include "src/train/evaluate/sequence_batch.hpp"

#include <algorithm>

namespace vocabpipe {

SequenceBatch::SequenceBatch(const EvaluationShape& shape) : shape_(shape) {
    const auto per_microbatch = static_cast<size_t>(shape.micro_batch_size * shape.seq_length);
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
             .seq_length = shape.seq_length,
             .tokens = std::span(tokens_).subspan(at, per_microbatch),
             .labels = std::span(labels_).subspan(at, per_microbatch),
             .loss_gradient = std::span(counted_).subspan(at, per_microbatch),
             .first_visible = shape.separate_documents
                                  ? std::span(first_visible_).subspan(at, per_microbatch)
                                  : std::span<int32_t>()});
    }
}

void SequenceBatch::load(int64_t first, int64_t count, int replica, const FillSequence& fill) {
    const auto length = static_cast<size_t>(shape_.seq_length);
    for (int64_t row = 0; row < shape_.sequences_per_replica(); ++row) {
        const auto row_of = [&](std::vector<int32_t>& all, int32_t value) {
            if (all.empty()) return std::span<int32_t>();
            const auto part = std::span(all).subspan(static_cast<size_t>(row) * length, length);
            std::fill(part.begin(), part.end(), value);
            return part;
        };
        const SequenceRow empty{.tokens = row_of(tokens_, 0),
                                .labels = row_of(labels_, -1),
                                .first_visible = row_of(first_visible_, 0)};
        const int64_t sequence = shape_.sequence_of(first, row, replica);
        if (sequence < count) fill(sequence, empty);
    }
    std::transform(labels_.begin(), labels_.end(), counted_.begin(),
                   [](int32_t label) { return label >= 0 ? 1.0F : 0.0F; });
}

int64_t SequenceBatch::counted(int64_t row) const {
    const auto labels = labels_.begin() + row * shape_.seq_length;
    return std::count_if(labels, labels + shape_.seq_length,
                         [](int32_t label) { return label >= 0; });
}

}  // namespace vocabpipe

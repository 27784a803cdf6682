// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/batch_rows.hpp"

#include <cstddef>

namespace vocabpipe {

BatchRows::BatchRows(const SampleForm& form, const ContextCut& cut, int64_t micro_batch_size)
    : form_(form), cut_(cut), micro_batch_size_(micro_batch_size) {}

void BatchRows::resize(int microbatches) {
    if (microbatches_.size() == static_cast<size_t>(microbatches)) return;
    const auto per_microbatch = static_cast<size_t>(micro_batch_size_ * cut_.own_length());
    const size_t total = per_microbatch * static_cast<size_t>(microbatches);
    tokens_.resize(total);
    labels_.resize(total);
    loss_gradients_.resize(total);
    if (form_.separates_documents) first_visible_.resize(total);
    if (form_.resets_positions) positions_.resize(total);
    microbatches_.clear();
    for (int j = 0; j < microbatches; ++j) {
        const size_t at = static_cast<size_t>(j) * per_microbatch;
        const auto part = [&](const auto& all) {
            return all.empty() ? std::span(all) : std::span(all).subspan(at, per_microbatch);
        };
        microbatches_.push_back({.index = j,
                                 .sequences = micro_batch_size_,
                                 .seq_length = cut_.own_length(),
                                 .tokens = part(tokens_),
                                 .labels = part(labels_),
                                 .loss_gradient = part(loss_gradients_),
                                 .first_visible = part(first_visible_),
                                 .positions = part(positions_)});
    }
}

void BatchRows::put(int64_t row, const Sample& sample) {
    const int64_t first = row * cut_.own_length();
    const auto take = [&]<typename T>(const std::vector<T>& whole, std::vector<T>& own) {
        cut_.take(std::span<const T>(whole),
                  std::span(own).subspan(static_cast<size_t>(first),
                                         static_cast<size_t>(cut_.own_length())));
    };
    take(sample.tokens, tokens_);
    take(sample.labels, labels_);
    take(sample.loss_weights, loss_gradients_);
    if (form_.separates_documents) take(sample.first_visible, first_visible_);
    for (int64_t i = 0; i < cut_.own_length(); ++i) {
        const auto at = static_cast<size_t>(first + i);
        if (labels_[at] < 0 || !(loss_gradients_[at] > 0)) {
            labels_[at] = kIgnoredLabel;
            loss_gradients_[at] = 0;
        }
        if (form_.resets_positions) {
            positions_[at] = static_cast<int32_t>(cut_.position(i)) - first_visible_[at];
        }
    }
}

std::span<const float> BatchRows::loss_gradients(int64_t row) const {
    return std::span(loss_gradients_)
        .subspan(static_cast<size_t>(row * cut_.own_length()),
                 static_cast<size_t>(cut_.own_length()));
}

}  // namespace vocabpipe

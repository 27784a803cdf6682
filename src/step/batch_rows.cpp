// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/batch_rows.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstddef>
#include <string>

namespace vocabpipe {

BatchRows::BatchRows(const SampleForm& form, const ContextCut& cut, int64_t micro_batch_size,
                     const LaterTokens& later)
    : form_(form), cut_(cut), micro_batch_size_(micro_batch_size), later_(later) {
    if (later.depths > 0 && cut.ranks() > 1) {
        throw UsageError("labels of later tokens: are not supported with " +
                         std::to_string(cut.ranks()) + " context ranks; use 1");
    }
}

void BatchRows::resize(int microbatches) {
    resize(std::vector<int64_t>(static_cast<size_t>(microbatches), cut_.seq_length()));
}

void BatchRows::resize(std::span<const int64_t> seq_lengths) {
    if (std::ranges::equal(seq_lengths, seq_lengths_)) return;
    seq_lengths_.assign(seq_lengths.begin(), seq_lengths.end());
    first_tokens_.clear();
    int64_t tokens = 0;
    for (const int64_t length : seq_lengths) {
        first_tokens_.push_back(tokens);
        tokens += micro_batch_size_ * length / cut_.ranks();
    }
    const auto total = static_cast<size_t>(tokens);
    tokens_.resize(total);
    const auto predicted = static_cast<size_t>(1 + later_.depths);
    labels_.resize(total * predicted);
    loss_gradients_.resize(total * predicted);
    if (form_.separates_documents) first_visible_.resize(total);
    if (form_.resets_positions) positions_.resize(total);
    const auto columns = static_cast<size_t>(form_.columns);
    columns_.resize(total * columns);
    microbatches_.clear();
    for (size_t j = 0; j < seq_lengths.size(); ++j) {
        const int64_t own_length = seq_lengths[j] / cut_.ranks();
        const auto part = [&](const auto& all) {
            return all.empty() ? std::span(all)
                               : std::span(all).subspan(
                                     static_cast<size_t>(first_tokens_[j]),
                                     static_cast<size_t>(micro_batch_size_ * own_length));
        };
        const auto labels_part = [&](const auto& all) {
            return std::span(all).subspan(
                static_cast<size_t>(first_tokens_[j]) * predicted,
                static_cast<size_t>(micro_batch_size_ * own_length) * predicted);
        };
        microbatches_.push_back(
            {.index = static_cast<int>(j),
             .sequences = micro_batch_size_,
             .seq_length = own_length,
             .tokens = part(tokens_),
             .labels = labels_part(labels_),
             .loss_gradient = labels_part(loss_gradients_),
             .first_visible = part(first_visible_),
             .positions = part(positions_),
             .columns = std::span(columns_).subspan(
                 static_cast<size_t>(first_tokens_[j]) * columns,
                 static_cast<size_t>(micro_batch_size_ * own_length) * columns)});
    }
}

void BatchRows::put(int64_t row, const Sample& sample) {
    const ContextCut cut(seq_lengths_[microbatch_of(row)], cut_.rank(), cut_.ranks());
    const int64_t first = first_of(row);
    const int64_t first_label = first_label_of(row);
    const auto take = [&]<typename T>(const std::vector<T>& whole, std::vector<T>& own,
                                      int64_t to) {
        cut.take(
            std::span<const T>(whole),
            std::span(own).subspan(static_cast<size_t>(to), static_cast<size_t>(cut.own_length())));
    };
    take(sample.tokens, tokens_, first);
    take(sample.labels, labels_, first_label);
    take(sample.loss_weights, loss_gradients_, first_label);
    if (form_.separates_documents) take(sample.first_visible, first_visible_, first);
    put_columns(row, sample);
    for (int64_t i = 0; i < cut.own_length(); ++i) {
        const auto at = static_cast<size_t>(first + i);
        const auto label = static_cast<size_t>(first_label + i);
        if (labels_[label] < 0 || !(loss_gradients_[label] > 0)) {
            labels_[label] = kIgnoredLabel;
            loss_gradients_[label] = 0;
        }
        if (form_.resets_positions) {
            positions_[at] = static_cast<int32_t>(cut.position(i)) - first_visible_[at];
        }
    }
    put_later_labels(row);
}

void BatchRows::put_later_labels(int64_t row) {
    const Microbatch& microbatch = microbatches_[microbatch_of(row)];
    const int64_t length = microbatch.seq_length;
    const int64_t first = first_of(row);
    const int64_t next = first_label_of(row);
    for (int k = 1; k <= later_.depths; ++k) {
        for (int64_t i = 0; i < length; ++i) {
            const auto at = static_cast<size_t>(next + k * microbatch.size() + i);
            const auto from = static_cast<size_t>(next + i + k);
            const bool known =
                i + k < length && (!form_.separates_documents ||
                                   first_visible_[static_cast<size_t>(first + i + k)] <= i);
            labels_[at] = known ? labels_[from] : kIgnoredLabel;
            loss_gradients_[at] = known ? loss_gradients_[from] * later_.weight : 0;
        }
    }
}

void BatchRows::put_columns(int64_t row, const Sample& sample) {
    const size_t microbatch = microbatch_of(row);
    const ContextCut cut(seq_lengths_[microbatch], cut_.rank(), cut_.ranks());
    const size_t whole = sample.tokens.size();
    const auto own = static_cast<size_t>(cut.own_length());
    const auto columns = static_cast<size_t>(form_.columns);
    if (sample.columns.size() < columns * whole) {
        throw UsageError("a sample has " + std::to_string(sample.columns.size()) +
                         " numbers of columns, but its form promises " + std::to_string(columns) +
                         " for each of " + std::to_string(whole) + " tokens");
    }
    const auto rows = static_cast<size_t>(micro_batch_size_);
    const auto first = static_cast<size_t>(first_tokens_[microbatch]) * columns;
    for (size_t c = 0; c < columns; ++c) {
        const size_t to = first + (c * rows + static_cast<size_t>(row) % rows) * own;
        cut.take(std::span(sample.columns).subspan(c * whole, whole),
                 std::span(columns_).subspan(to, own));
    }
}

std::span<const float> BatchRows::loss_gradients(int64_t row) const {
    return std::span(loss_gradients_)
        .subspan(static_cast<size_t>(first_label_of(row)),
                 static_cast<size_t>(microbatches_[microbatch_of(row)].seq_length));
}

}  // namespace vocabpipe

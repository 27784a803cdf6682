// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context_cut.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/sample_source.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// The tokens after the next one that a model predicts (multi-token prediction).
struct LaterTokens {
    int depths = 0;    ///< D; default: none
    float weight = 0;  ///< of the loss of one depth (ModelConfig::mtp_loss_weight())
};
/// Those of the model.
[[nodiscard]] inline LaterTokens later_tokens(const ModelConfig& model) {
    return {.depths = model.mtp_num_layers, .weight = model.mtp_loss_weight()};
}

/// Samples as the sequences of microbatches, and of every sequence the tokens of a context rank.
/// Row j * micro_batch_size + i is sequence i of microbatch j. All sequences of a microbatch are
/// equally long. With depths, the labels of a microbatch are those of the next token, then those of
/// depth k = 1 .. D: label i is label i + k of the sequence, and ignored where the sequence or the
/// document of token i ends before.
class BatchRows {
public:
    /// `form`: of all samples that will be put in; `cut`: of the longest sequences;
    /// `micro_batch_size`: sequences. UsageError for `later` tokens and a cut of several ranks.
    BatchRows(const SampleForm& form, const ContextCut& cut, int64_t micro_batch_size,
              const LaterTokens& later = {});
    BatchRows(const BatchRows&) = delete;
    BatchRows& operator=(const BatchRows&) = delete;

    /// Has room for `microbatches` of the longest sequences; their rows hold nothing yet.
    void resize(int microbatches);
    /// The same for a microbatch of sequences of each of these lengths.
    void resize(std::span<const int64_t> seq_lengths);

    /// Copies this rank's tokens of `sample`, as long as the sequences of its microbatch, into
    /// `row`. The loss
    /// gradients are the loss weights, and 0 where the label is ignored; a label whose weight is 0
    /// becomes kIgnoredLabel. UsageError for a sample without the columns of the form.
    void put(int64_t row, const Sample& sample);

    /// Their spans are valid until the next resize().
    [[nodiscard]] std::span<Microbatch> microbatches() { return microbatches_; }
    /// The same.
    [[nodiscard]] std::span<const Microbatch> microbatches() const { return microbatches_; }
    /// Weights of the labels of all rows, one row after the other, to be scaled.
    [[nodiscard]] std::span<float> loss_gradients() { return loss_gradients_; }
    /// (own_length()), of this rank's tokens in a row.
    [[nodiscard]] std::span<const float> loss_gradients(int64_t row) const;

private:
    /// The microbatch of a row.
    [[nodiscard]] size_t microbatch_of(int64_t row) const {
        return static_cast<size_t>(row / micro_batch_size_);
    }
    /// Where the rank's tokens of a row are among those of all rows.
    [[nodiscard]] int64_t first_of(int64_t row) const {
        const size_t j = microbatch_of(row);
        return first_tokens_[j] + row % micro_batch_size_ * microbatches_[j].seq_length;
    }
    void put_columns(int64_t row, const Sample& sample);
    void put_later_labels(int64_t row);
    /// Where the labels of the next tokens of a row are among all labels.
    [[nodiscard]] int64_t first_label_of(int64_t row) const {
        const size_t j = microbatch_of(row);
        return first_of(row) + first_tokens_[j] * later_.depths;
    }

    SampleForm form_;
    ContextCut cut_;
    int64_t micro_batch_size_;
    LaterTokens later_;
    std::vector<int32_t> tokens_;  ///< all rows, one after the other; likewise below
    std::vector<int32_t> labels_;  ///< of a microbatch (1 + D, N), then of the next
    std::vector<float> loss_gradients_;
    std::vector<int32_t> first_visible_;  ///< empty unless documents are separate
    std::vector<int32_t> positions_;      ///< empty unless they begin anew with documents
    std::vector<float> columns_;          ///< of a microbatch (C, N), then of the next
    std::vector<Microbatch> microbatches_;
    std::vector<int64_t> seq_lengths_;   ///< [microbatch], before context ranks cut them
    std::vector<int64_t> first_tokens_;  ///< [microbatch] the rank's, among those of all rows
};

}  // namespace vocabpipe

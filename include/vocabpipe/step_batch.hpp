// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/modules.hpp"
#include "vocabpipe/token_dataset.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// The microbatches of one step. Every rank reads all of them: embedding and output shards need
/// every token and every label, and with all labels at hand the loss's gradient factors need no
/// communication.
class StepBatch {
public:
    /// Room for a step; the data set must outlive it.
    StepBatch(const TokenDataset& dataset, int64_t micro_batch_size, int microbatches);

    /// Sample first_sample + i goes to microbatch i / micro batch.
    void load(int64_t first_sample);

    /// Of the step that was loaded last; valid as long as this object.
    [[nodiscard]] std::span<const Microbatch> microbatches() const { return microbatches_; }
    /// Labels that are not ignored.
    [[nodiscard]] int64_t counted_tokens() const { return counted_tokens_; }
    /// Sequences per step.
    [[nodiscard]] int64_t global_batch_size() const {
        return micro_batch_size_ * static_cast<int64_t>(microbatches_.size());
    }

private:
    const TokenDataset& dataset_;
    int64_t micro_batch_size_;
    std::vector<int32_t> tokens_, labels_;  ///< all microbatches, one after the other
    std::vector<float> loss_gradient_;
    std::vector<int32_t> sample_;
    std::vector<Microbatch> microbatches_;
    int64_t counted_tokens_ = 0;
};

}  // namespace vocabpipe

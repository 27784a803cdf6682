// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"
#include "vocabpipe/modules.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// One step's random tokens, the same on every rank; each token is the label of the one before it,
/// and of depth k of multi-token prediction that of the token k + 1 before it.
class RandomBatch {
public:
    /// `sequences` in each of the microbatches.
    RandomBatch(const ModelConfig& model, int64_t sequences, int microbatches, uint64_t seed);

    [[nodiscard]] std::span<const Microbatch> microbatches() const { return microbatches_; }
    /// Every token counts.
    [[nodiscard]] int64_t counted_tokens() const { return counted_tokens_; }

private:
    int64_t counted_tokens_;
    std::vector<int32_t> tokens_;       ///< followed by the last one's labels
    std::vector<int32_t> labels_;       ///< of a microbatch (1 + D, N), then of the next
    std::vector<float> loss_gradient_;  ///< of any microbatch
    std::vector<Microbatch> microbatches_;
};

}  // namespace vocabpipe

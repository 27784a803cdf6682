// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"
#include "vocabpipe/modules.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// One step's random tokens, the same on every rank; each token is the label of the one before it.
class RandomBatch {
public:
    /// `sequences` in each of the microbatches.
    RandomBatch(const ModelConfig& model, int64_t sequences, int microbatches, uint64_t seed);

    [[nodiscard]] std::span<const Microbatch> microbatches() const { return microbatches_; }
    /// Every token counts.
    [[nodiscard]] int64_t counted_tokens() const { return std::ssize(tokens_) - 1; }

private:
    std::vector<int32_t> tokens_;  ///< followed by the last one's label
    std::vector<float> loss_gradient_;
    std::vector<Microbatch> microbatches_;
};

}  // namespace vocabpipe

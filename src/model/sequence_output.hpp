// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/modules.hpp"

#include <cstdint>
#include <span>

namespace vocabpipe {

/// What an OutputLayer has besides training: results by sequence, which evaluation and data
/// selection read. A layer of your own computes losses of training without it.
class SequenceOutput {
public:
    virtual ~SequenceOutput() = default;
    /// Before a step with this number of sequences per microbatch. In that step
    /// OutputLayer::losses() are plain cross-entropies without the training-only terms, and one per
    /// sequence: [microbatch][sequence]. Steps after it train again.
    virtual void evaluate_next_step(int64_t sequences) = 0;
    /// In an evaluation with ModelPartition::hidden_sums, [microbatch][sequence] of the running
    /// step: the sum of x over the sequence's tokens, kSumRows equal rows of h elements per
    /// sequence. Only on the rank with the first row of the vocabulary, from which losses are
    /// taken.
    [[nodiscard]] virtual std::span<const float> hidden_sums() const = 0;
    static constexpr int64_t kSumRows = 8;  ///< fewest rows of a product; all are equal
};

/// Null for no layer, and for a layer without results by sequence.
[[nodiscard]] inline SequenceOutput* sequence_output(OutputLayer* layer) {
    return dynamic_cast<SequenceOutput*>(layer);
}

}  // namespace vocabpipe

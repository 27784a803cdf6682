// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/evaluate/sequence_losses.hpp"
#include "vocabpipe/document_masks.hpp"
#include "vocabpipe/sample_source.hpp"

#include <cstdint>

namespace vocabpipe {

/// How well a model predicts text.
struct ValidationLoss {
    double loss = 0;     ///< mean cross-entropy of the counted tokens, in nats; NaN: there are none
    int64_t tokens = 0;  ///< counted
    /// e^loss: the model is as unsure as among this many equally likely tokens.
    [[nodiscard]] double perplexity() const;
};

/// Fills in samples of `source` as training sees them. `source` must outlive it.
[[nodiscard]] FillSequence samples_to_evaluate(const SampleSource& source,
                                               const DocumentMasks& masks);

/// Mean loss over samples 0 .. samples - 1 of the source (all if it has fewer), as training sees
/// them: with the masks of documents. Summed in double precision in the order of the samples.
/// Collective.
[[nodiscard]] ValidationLoss validation_loss(SequenceLosses& losses, const SampleSource& source,
                                             const DocumentMasks& masks, int64_t samples);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/evaluate/sequence_losses.hpp"
#include "vocabpipe/document_masks.hpp"
#include "vocabpipe/sample_source.hpp"

#include <cstdint>

namespace vocabpipe {

/// How well a model predicts text that it was not trained on.
struct ValidationLoss {
    double loss = 0;     ///< mean cross-entropy of the counted tokens, in nats; NaN: there are none
    int64_t tokens = 0;  ///< counted
    /// e^loss: among how many equally likely tokens the model would be as unsure.
    [[nodiscard]] double perplexity() const;
};

/// Writes samples of a source as training sees them. `source` must outlive it.
[[nodiscard]] FillSequence samples_to_evaluate(const SampleSource& source,
                                               const DocumentMasks& masks);

/// As training sees them: with the masks of documents. Over samples 0 .. samples - 1 of the source,
/// or all that there are if they are fewer. Added up in double precision and in the order of the
/// samples. Collective.
[[nodiscard]] ValidationLoss validation_loss(SequenceLosses& losses, const SampleSource& source,
                                             const DocumentMasks& masks, int64_t samples);

}  // namespace vocabpipe

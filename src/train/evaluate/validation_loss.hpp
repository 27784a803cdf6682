// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/evaluate/sequence_losses.hpp"
#include "vocabpipe/sample_source.hpp"

#include <cstdint>

namespace vocabpipe {

/// How well a model predicts text.
struct ValidationLoss {
    /// Weighted mean of the cross-entropies of the labels, in nats; NaN: there are none.
    double loss = 0;
    int64_t tokens = 0;  ///< labels that are not ignored and have a weight above 0
    /// e^loss: the model is as unsure as among this many equally likely tokens.
    [[nodiscard]] double perplexity() const;
};

/// Fills in samples of `source`, which must outlive it.
[[nodiscard]] FillSequence samples_to_evaluate(const SampleSource& source);

/// Loss over samples 0 .. samples - 1 of the source (all if it has fewer), as training sees them:
/// sum(w loss) / sum(w) in double precision in the order of the samples. Collective.
[[nodiscard]] ValidationLoss validation_loss(SequenceLosses& losses, const SampleSource& source,
                                             int64_t samples);

}  // namespace vocabpipe

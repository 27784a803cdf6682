// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/score/forward_options.hpp"
#include "src/train/select/sample_scores.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>

namespace vocabpipe {

/// Options of scoring samples.
struct ScoreOptions : ForwardOptions {
    UtilityKind utility = UtilityKind::margin;  // --utility
};

/// Summary of a scores file.
struct ScoreTotals {
    int64_t samples = 0;
    int64_t hidden_size = 0;
    double mean_loss = 0;     ///< over samples: mean of their mean losses
    double mean_utility = 0;  ///< over samples, not in units of 2^-20
};

/// Scores every sample of the training data with a saved model and writes the file of
/// ScoresWriter. In each pipeline, the rank with the losses writes the rows of its samples as steps
/// end. The file appears when it is complete. Collective; errors are agreed on. The totals are the
/// same on every rank.
ScoreTotals score_samples(Communicator& world, const ScoreOptions& options);

}  // namespace vocabpipe

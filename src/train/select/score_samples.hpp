// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/rank_placement.hpp"
#include "src/train/data/data_options.hpp"
#include "src/train/select/sample_scores.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/schedule.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace vocabpipe {

/// Options of scoring; the comments name the flags of vocabpipe select score.
struct ScoreOptions {
    std::string load;                               // --load, a folder of steps, a step, or a model
    DataOptions data;                               // its training part, in stream order
    int64_t seq_length = 0;                         // --seq-length
    UtilityKind utility = UtilityKind::margin;      // --utility
    std::string output;                             // --output
    int64_t micro_batch_size = 1;                   // --micro-batch-size
    int pipeline = 0;                               // --pipeline-model-parallel-size; 0: all ranks
    std::string schedule = "1f1b";                  // --schedule, a family's name
    VocabMode vocab_mode = VocabMode::one_barrier;  // --vocab-mode
    int chunks = 0;                                 // --chunks; 0: the family's own
    int threads_per_rank = 0;                       // --threads-per-rank; 0: its share of cores
    /// Makes the rank's device, on its thread; empty: the host.
    std::function<std::unique_ptr<Device>(const RankPlacement&)> make_device;
    /// Called on rank 0 after every step with the numbers of finished and of all samples.
    std::function<void(int64_t done, int64_t all)> progress;
    std::function<int()> ending_signal;  ///< the signal that ends the work, 0: none; empty: never
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

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/rank_placement.hpp"
#include "src/train/data/data_options.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace vocabpipe {

/// Options of a run of a saved model over samples, forward only; the comments name the flags.
struct ForwardOptions {
    std::string load;                               // --load, a folder of steps, a step, or a model
    DataOptions data;                               // its training part, in stream order
    int64_t seq_length = 0;                         // --seq-length
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

}  // namespace vocabpipe

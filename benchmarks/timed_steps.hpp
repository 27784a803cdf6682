// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "benchmarks/product_timer.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/schedule.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <string>

namespace vocabpipe::bench {

/// A training run on random tokens, timed.
struct StepCase {
    ModelConfig model;
    std::string schedule = "1f1b";
    VocabMode vocab_mode = VocabMode::none;
    int microbatches = 1;
    int64_t micro_batch_size = 1;
    int threads = 1;
    int warmup = 2;  ///< compiles kernels and fills caches
    int steps = 7;   ///< the median is reported
};

struct StepTiming {
    double median_seconds = 0;  ///< of a step, optimizer included
    double fastest_seconds = 0;
    double mean_seconds = 0;
    /// Median time from the first begin to the last end of this rank's actions, by the device's
    /// clock; the rest of a step is the host's.
    double device_seconds = 0;
    double first_loss = 0;  ///< of the first step; must not depend on schedule and vocabulary mode
    double flops = 0;       ///< model FLOPs of a step, 3 * tokens * forward FLOPs per token
    double busy_share = 0;  ///< of this rank: CPU time of passes over time
};

/// Collective; the timing is this rank's.
[[nodiscard]] StepTiming time_steps(Communicator& communicator, Device& device,
                                    const StepCase& which);

/// Rate of plain matrix products of the model's shapes, in FLOP/s: the products of one layer's
/// forward, input-gradient and weight-gradient passes and of the whole output layer, weighted by
/// their FLOPs, without epilogues. On GPUs rows of logits begin at multiples of 16 bytes, which the
/// best algorithms need, whether or not V does.
[[nodiscard]] double gemm_rate(const StepCase& which, Device& device, const ProductTimer& time);

/// The busiest rank's share of the work over the mean rank's, from FLOPs alone: the largest gain
/// from balancing the vocabulary layers.
[[nodiscard]] double ideal_speedup(const ModelConfig& model, int ranks);

}  // namespace vocabpipe::bench

// SPDX-License-Identifier: Apache-2.0
// The flags for lengths in samples: Megatron's other way to set the length of a run and of its
// learning-rate schedule.
#include "src/train/options/train_flags.hpp"

#include "src/train/options/batch_size_schedule.hpp"
#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe {

FlagGroup sample_flags(TrainOptions& o) {
    LearningRateOptions& l = o.learning_rate;
    const auto row = [](const char* name, std::optional<int64_t>* value, const char* help,
                        const char* unset, double least) {
        return Flag{.names = name,
                    .value = value,
                    .help = help,
                    .unit = "SAMPLES",
                    .range = at_least(least),
                    .unset = unset};
    };
    return {
        .title = "Steps and learning rate",
        .flags = {
            row("--train-samples", &o.train_samples,
                "Length of the run in sequences, in place of --train-iters; a last batch "
                "that is not full is not taken",
                "set by --train-iters", 1),
            row("--lr-warmup-samples", &l.warmup_samples,
                "With --train-samples: length of the warm-up", "no warm-up", 0),
            row("--lr-decay-samples", &l.decay_samples,
                "With --train-samples: sample at which the learning rate reaches --min-lr",
                "--train-samples", 1),
            row("--lr-wsd-decay-samples", &l.wsd_decay_samples,
                "With --train-samples: length of the WSD decay", "none; required with WSD", 1)}};
}

void count_steps_of_samples(TrainOptions& options) {
    if (!options.train_samples) return;
    const int64_t samples = *options.train_samples;
    // Whether sizes are whole microbatches is checked later, when the number of replicas is known.
    options.train_iters =
        BatchSizeSchedule(options.global_batch_size, options.ramp_up, /*unit=*/1).steps_of(samples);
    if (options.train_iters > 0) return;
    throw UsageError("--train-samples " + std::to_string(samples) +
                     ": is less than one step of --global-batch-size " +
                     std::to_string(options.global_batch_size) + "; use more samples");
}

}  // namespace vocabpipe

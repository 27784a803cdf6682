// SPDX-License-Identifier: Apache-2.0
// The flags about the results of a run: saved steps, outputs, ways to end early.
#include "src/train/options/train_flags.hpp"

namespace vocabpipe {

FlagGroup saved_step_flags(TrainOptions& o) {
    return {
        .title = "Checkpoints",
        .flags = {
            {.names = "--load",
             .value = &o.load,
             .help = "Resume from the newest step in a folder or from one saved step, or start "
                     "from the weights of a Hugging Face model",
             .unit = "FOLDER",
             .decides = Decides::nothing},
            {.names = "--load-adapter",
             .value = &o.load_adapter,
             .help = "With --load of a model: start from the adapters that PEFT saved in a folder",
             .unit = "FOLDER",
             .decides = Decides::nothing},
            {.names = "--finetune",
             .value = &o.finetune,
             .help =
                 "With --load of a saved step: load only the weights and start training at step 1",
             .decides = Decides::nothing},
            {.names = "--save",
             .value = &o.save,
             .help = "Folder for saved steps; the last step is always saved",
             .unit = "FOLDER",
             .decides = Decides::nothing},
            {.names = "--save-interval",
             .value = &o.save_interval,
             .help = "Number of steps between saves",
             .unit = "STEPS",
             .range = at_least(0),
             .unset = "by time alone",
             .decides = Decides::nothing},
            {.names = "--save-interval-in-mins",
             .value = &o.save_interval_minutes,
             .help = "Save after a step when so many minutes have gone by since the last save; 0: "
                     "never",
             .unit = "MINUTES",
             .range = at_least(0),
             .decides = Decides::nothing},
            {.names = "--save-total-limit",
             .value = &o.save_total_limit,
             .help = "Maximum number of complete saved steps to keep",
             .unit = "STEPS",
             .range = at_least(0),
             .unset = "all",
             .decides = Decides::nothing},
            {.names = "--max-shard-size",
             .value = FlagBytes{&o.max_shard_bytes},
             .help = "Maximum size of the weights in a saved file, such as 500MB",
             .unit = "BYTES",
             .unset = "5GB",
             .decides = Decides::nothing},
            {.names = "--async-save",
             .value = &o.async_save,
             .help = "Copy the state to host memory and write it while training continues",
             .decides = Decides::nothing},
        }};
}

FlagGroup output_flags(TrainOptions& o) {
    return {.title = "Outputs",
            .flags = {
                {.names = "--log-interval",
                 .value = &o.log_interval,
                 .help = "Steps per log line; without this flag, a terminal shows a progress bar",
                 .unit = "STEPS",
                 .range = at_least(1),
                 .decides = Decides::nothing},
                {.names = "--metrics",
                 .value = &o.metrics,
                 .help = "File for metrics, one JSON object per step",
                 .unit = "FILE",
                 .decides = Decides::nothing},
                {.names = "--report",
                 .value = &o.report,
                 .help = "File for the final report (JSON)",
                 .unit = "FILE",
                 .decides = Decides::nothing},
                {.names = "--profile",
                 .value = &o.profile,
                 .help = "File for the measured costs of passes and links (JSON)",
                 .unit = "FILE",
                 .decides = Decides::nothing,
                 .without_value = "remove Megatron's switch, or name a FILE for measured costs"},
                {.names = "--trace-dir",
                 .value = &o.trace_dir,
                 .help = "Folder for Chrome traces of the last step",
                 .unit = "FOLDER",
                 .decides = Decides::nothing},
                {.names = "--tensorboard-dir",
                 .value = &o.tensorboard_dir,
                 .help = "Folder for TensorBoard event files",
                 .unit = "FOLDER",
                 .decides = Decides::nothing},
                {.names = "--tensorboard-log-interval",
                 .value = &o.tensorboard_log_interval,
                 .help = "Number of steps between points in TensorBoard",
                 .unit = "STEPS",
                 .range = at_least(1),
                 .decides = Decides::nothing},
                {.names = "--time-products",
                 .value = &o.time_products,
                 .help = "File for the fastest algorithms of the run's matrix products on GPUs, "
                         "timed after the last step; input of --product-choices",
                 .unit = "FILE",
                 .decides = Decides::nothing},
            }};
}

FlagGroup verification_flags(TrainOptions& o) {
    return {.title = "Verification",
            .flags = {
                {.names = "--verify-against-one-rank",
                 .value = &o.verify_steps,
                 .help = "Before the first step, take so many steps on all ranks and the same on "
                         "one, compare losses, gradients and weights, and end with exit code 7 if "
                         "they differ by more than rounding; then train from the beginning",
                 .unit = "STEPS",
                 .range = at_least(0),
                 .unset = "none",
                 .decides = Decides::nothing},
                {.names = "--verify-ranks",
                 .value = &o.verify_ranks,
                 .help = "Ranks of the pipeline of whole layers that --verify-against-one-rank "
                         "compares with; it has the bits of one rank",
                 .unit = "RANKS",
                 .range = between(1, 65535),
                 .unset = "one; on hosts, 2, 4, ... if fewer have no room",
                 .absent = 0,
                 .decides = Decides::nothing},
                {.names = "--replay-steps",
                 .value = &o.replay_interval,
                 .help = "Before every step that is a multiple of this, run its first microbatches "
                         "twice, and end with exit code 7 if any bit differs: a processor, memory "
                         "or link is faulty",
                 .unit = "STEPS",
                 .range = at_least(0),
                 .unset = "never",
                 .decides = Decides::nothing},
            }};
}

FlagGroup end_flags(TrainOptions& o) {
    return {.title = "Ending early",
            .flags = {
                {.names = "--exit-interval",
                 .value = &o.exit_interval,
                 .help = "Save and exit after a step that is a multiple of this",
                 .unit = "STEPS",
                 .range = at_least(0),
                 .unset = "never",
                 .decides = Decides::nothing},
                {.names = "--exit-duration-in-mins",
                 .value = &o.exit_duration_minutes,
                 .help = "Save and exit after this time",
                 .unit = "MINUTES",
                 .range = above(0),
                 .unset = "never",
                 .decides = Decides::nothing},
            }};
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/rank_placement.hpp"
#include "src/train/data/data_options.hpp"
#include "src/train/options/batch_size_schedule.hpp"
#include "src/train/options/evaluation_options.hpp"
#include "src/train/options/gpu_options.hpp"
#include "src/train/options/training_loss.hpp"
#include "vocabpipe/learning_rate.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/optimizer_step.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/schedule.hpp"
#include "vocabpipe/stage_layout.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

/// A training run; the comments name the flags of train_gpt.
struct TrainOptions {
    ModelConfig model;
    DataOptions data;
    int64_t micro_batch_size = 1;            // --micro-batch-size, sequences
    int64_t global_batch_size = 8;           // --global-batch-size, sequences
    std::optional<BatchSizeRampUp> ramp_up;  // --rampup-batch-size
    int64_t train_iters = 100;               // --train-iters
    /// --train-samples: lengths of the learning rate are in samples, and train_iters is the number
    /// of steps that these make (BatchSizeSchedule::steps_of()); none: lengths are in steps.
    std::optional<int64_t> train_samples;
    double lr = 3e-4;             // --lr; suits models of this size with AdamW
    double min_lr = 0;            // --min-lr
    int64_t lr_warmup_iters = 0;  // --lr-warmup-iters
    LearningRateOptions learning_rate;
    OptimizerOptions optimizer;
    TrainingLoss loss;
    uint64_t seed = 1234;  // --seed; Megatron's default

    int pipeline_model_parallel_size = 0;  // --pipeline-model-parallel-size; 0: all ranks there are
    int context_parallel_size = 1;         // --context-parallel-size
    ContextForm context_form = ContextForm::allgather;  // --cp-comm-type; works with any heads
    int tensor_model_parallel_size = 1;                 // --tensor-model-parallel-size
    int expert_model_parallel_size = 1;                 // --expert-model-parallel-size
    int expert_tensor_parallel_size = 1;                // --expert-tensor-parallel-size
    double moe_row_factor = kMoeRowFactor;              // --moe-row-factor
    ZeroOptions zero;               // --zero-stage, --reshard-after, --gather-ahead
    std::string schedule = "1f1b";  // --schedule, a name or a .csv or .json file
    /// Without --schedule: interleaved where ranks have several stages (with_chosen_schedule()).
    bool schedule_by_stages = false;
    std::string layout;    // --pipeline-model-parallel-layout; empty: even, or redistributed
    EndLayers end_layers;  // --decoder-first-, --decoder-last-pipeline-num-layers
    /// --chunks, --group-size, --memory-limit, --warm-up-depth, --search-moves, --broadcast-margin
    /// (in the unit of --schedule-costs F,B; nanoseconds where measured).
    RuleOptions rule;
    int layers_per_chunk = 0;            // --num-layers-per-virtual-pipeline-stage; 0: by chunks
    std::optional<Recompute> recompute;  // --recompute-granularity; none given: as a file says
    VocabMode vocab_mode =
        VocabMode::one_barrier;  // --vocab-mode; least memory of the balanced ones
    /// --schedule-costs F,B; none: auto, measured in the first steps, or cost_file.
    std::optional<std::pair<int64_t, int64_t>> schedule_costs = std::pair<int64_t, int64_t>{1, 2};
    std::string cost_file;                        // --schedule-costs FILE, a profile; empty: none
    int receive_ahead = 0;                        // --receive-ahead; 0: auto
    int tile_pieces = 0;                          // --tile-pieces; 0: auto
    std::string overlap_table;                    // --overlap-table FILE; empty: none
    bool blocking_exchanges = false;              // --blocking-exchanges; for comparisons alone
    Reductions reductions = Reductions::ordered;  // --reduction; the same bits on every transport
    int threads_per_rank = 0;  // --threads-per-rank; 0: this rank's share of the cores

    EvaluationOptions evaluation;

    std::string load;           // --load, a folder of steps, a step, or a model; empty: none
    std::string load_adapter;   // --load-adapter, PEFT's folder; empty: none
    bool finetune = false;      // --finetune, load only the weights of a step
    std::string save;           // --save, folder for steps; empty: none
    int64_t save_interval = 0;  // --save-interval, steps; 0: none
    /// --save-interval-in-mins; 0: none. Limits what a killed run loses.
    double save_interval_minutes = 10;
    int64_t save_total_limit = 0;              // --save-total-limit; 0: all are kept
    uint64_t max_shard_bytes = 5'000'000'000;  // --max-shard-size; transformers' default
    bool async_save = false;                   // --async-save; takes memory for a copy

    std::string trace_dir;                 // --trace-dir; empty: none
    std::string metrics;                   // --metrics, JSON lines; empty: none
    std::string tensorboard_dir;           // --tensorboard-dir; empty: none
    int64_t tensorboard_log_interval = 1;  // --tensorboard-log-interval, steps
    std::string report;                    // --report, one JSON object at the end; empty: none
    std::string profile;                   // --profile, measured costs; empty: none
    std::string time_products;             // --time-products, by after_training; empty: none
    std::vector<std::string> files_read;   // by the program itself, such as --config
    std::string command, date;             // recorded in the profile
    int64_t log_interval = 1;              // --log-interval
    bool log_interval_given = false;       // on a terminal, lines are printed only if given
    /// Width of the terminal, for a progress bar; empty: standard output is none.
    std::function<int()> terminal_columns;
    std::string device = "host";  // --device
    /// Makes the rank's device, on its thread; empty: the host.
    std::function<std::unique_ptr<Device>(const RankPlacement&)> make_device;
    GpuOptions gpu;
    /// Called on every rank after the last step, with the rank's communicator and device:
    /// --time-products. The result on rank 0 is printed.
    std::function<std::string(Communicator&, Device&)> after_training;
    bool ranks_are_threads = false;        // memory is the process's, not the rank's
    std::function<bool()> stop_requested;  // SIGUSR1 and others; empty: never
    std::optional<double> grace_seconds;   // from a signal to SIGKILL; none: no launcher kills
    bool grace_is_fixed = false;           // the launcher's grace cannot be extended
    std::function<int()> terminated;       // the signal that ends the run, 0: none; empty: never
    int64_t exit_interval = 0;             // --exit-interval, steps; 0: none
    std::optional<double> exit_duration_minutes;  // --exit-duration-in-mins
    int64_t verify_steps = 0;                     // --verify-against-one-rank; 0: none
    int verify_ranks = 0;                         // --verify-ranks; 0: one, or the fewest with room
    int64_t replay_interval = 0;                  // --replay-steps; 0: none
    bool stop_at_non_finite = false;  // --check-for-nan-in-loss-and-grad; else the step is skipped
    std::string note;                 // rank 0 prints it below the plan, wrapped; empty: none
};

}  // namespace vocabpipe

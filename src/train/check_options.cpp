// SPDX-License-Identifier: Apache-2.0
#include "src/train/check_options.hpp"

#include "src/model/parameters.hpp"
#include "src/train/checkpoint/crc32c.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "src/train/evaluation.hpp"
#include "src/train/parameter_groups.hpp"
#include "src/train/same_on_every_rank.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// Programs list every pass of a step on every rank: beyond this they fill the memory by
/// themselves.
constexpr int64_t kMostMicrobatches = int64_t{1} << 16;
/// Keeps every product of two sizes far inside 64 bits; no real model comes near.
constexpr int64_t kLargestSize = int64_t{1} << 24;
constexpr int64_t kMostHeads = int64_t{1} << 16;

template <typename T>
std::string text(T value) {
    std::ostringstream out;
    out << value;
    return out.str();
}

void within(const char* flag, int64_t value, int64_t least, int64_t most) {
    if (value < least) {
        throw UsageError(std::string(flag) + " " + text(value) + ": must be at least " +
                         text(least));
    }
    if (value > most) {
        throw UsageError(std::string(flag) + " " + text(value) + ": must be at most " + text(most));
    }
}

/// Written so that NaN fails as well.
void demand(bool good, const char* flag, double value, const char* limit) {
    if (!good || !std::isfinite(value)) {
        throw UsageError(std::string(flag) + " " + text(value) + ": must be " + limit);
    }
}

void not_negative(const char* flag, double value) {
    demand(value >= 0, flag, value, "a finite number that is not negative");
}

}  // namespace

std::vector<std::string> shared_flags(const TrainOptions& o) {
    std::vector<std::string> flags;
    const auto add = [&](const char* flag, const auto& value) {
        std::ostringstream out;
        out.precision(17);
        out << flag << " " << value;
        flags.push_back(out.str());
    };
    const ModelConfig& m = o.model;
    add("--pipeline-model-parallel-size", o.pipeline_model_parallel_size);
    add("--model-type", to_string(m.family));
    add("--num-layers", m.num_layers);
    add("--hidden-size", m.hidden_size);
    add("--ffn-hidden-size", m.ffn_hidden_size);
    add("--num-attention-heads", m.num_attention_heads);
    add("--num-query-groups", m.num_query_groups);
    add("--kv-channels", m.kv_channels);
    add("--sliding-window", m.sliding_window);
    add("--norm-epsilon", m.norm_epsilon);
    add("--rotary-base", m.rope.theta);
    add("--seq-length", m.seq_length);
    add("--max-position-embeddings", m.max_position_embeddings);
    add("--vocab-size", m.vocab_size);
    add("--untie-embeddings-and-output-weights", m.tied ? "not given" : "given");
    add("--dtype", m.dtype == DType::bf16 ? "bf16" : "fp32");
    add("--init-method-std", m.init_std);
    add("--label-smoothing", m.label_smoothing);
    add("--z-loss", m.z_loss);
    // What --model and --load say besides: positions, biases, windows by layer, caps.
    const std::string config = print_model_config(m);
    add("config.json with the checksum", crc32c(std::as_bytes(std::span(config))));
    add("--device", o.device);
    if (o.products.left_multiprocessors) {
        add("--left-multiprocessors", *o.products.left_multiprocessors);
    }
    if (!o.products.choices.empty()) {
        add("--product-choices with the checksum",
            crc32c(std::as_bytes(std::span(o.products.choices))));
    }
    add("--micro-batch-size", o.micro_batch_size);
    add("--global-batch-size", o.global_batch_size);
    add("--rampup-batch-size", o.ramp_up
                                   ? text(o.ramp_up->start) + " " + text(o.ramp_up->increment) +
                                         " " + text(o.ramp_up->samples)
                                   : std::string("not given"));
    add("--eval-interval", o.evaluation.interval);
    add("--eval-iters", o.evaluation.iters);
    add("--multiple-choice-path",
        o.evaluation.multiple_choice_path.empty() ? "not given" : "given");
    add("--skip-train", o.evaluation.skip_train ? "given" : "not given");
    add("--train-iters", o.train_iters);
    add("--lr", o.lr);
    add("--min-lr", o.min_lr);
    add("--lr-warmup-iters", o.lr_warmup_iters);
    const LearningRateOptions& l = o.learning_rate;
    add("--lr-warmup-fraction", l.warmup_fraction.value_or(0));
    add("--lr-warmup-init", l.warmup_init.value_or(0));
    add("--lr-decay-style", to_string(l.style));
    add("--lr-decay-iters", l.decay_iters.value_or(o.train_iters));
    add("--lr-wsd-decay-style", l.wsd_style ? to_string(*l.wsd_style) : "not given");
    add("--lr-wsd-decay-iters", l.wsd_decay_iters.value_or(0));
    std::string groups;
    for (const ParameterGroup& group : o.optimizer.groups) {
        groups += (groups.empty() ? "" : " ") + group.text;
    }
    add("--param-group", groups.empty() ? "not given" : groups);
    add("--weight-decay", o.optimizer.weight_decay);
    add("--clip-grad", o.optimizer.clip_grad);
    add("--adam-beta1", o.optimizer.beta1);
    add("--adam-beta2", o.optimizer.beta2);
    add("--adam-eps", o.optimizer.epsilon);
    add("--seed", o.seed);
    add("--exit-interval", o.exit_interval);
    add("--check-for-nan-in-loss-and-grad", o.stop_at_non_finite ? "given" : "not given");
    add("--schedule", o.schedule);
    add("--pipeline-model-parallel-layout", o.layout);
    add("--decoder-first-pipeline-num-layers", o.end_layers.first);
    add("--decoder-last-pipeline-num-layers", o.end_layers.last);
    add("--chunks", o.chunks);
    add("--num-layers-per-virtual-pipeline-stage", o.layers_per_chunk);
    add("--group-size", o.group_size);
    add("--memory-limit", o.memory_limit);
    add("--warm-up-depth", o.warm_up_depth);
    add("--search-moves", o.search_moves);
    add("--recompute-granularity", o.recompute ? to_string(*o.recompute) : "not given");
    add("--vocab-mode", to_string(o.vocab_mode));
    add("--schedule-costs",
        o.schedule_costs      ? text(o.schedule_costs->first) + "," + text(o.schedule_costs->second)
        : o.cost_file.empty() ? std::string("auto")
                              : o.cost_file);
    add("--split", o.data.split.empty() ? "not given" : o.data.split);
    add("--eod-token-id", o.data.eod_token_id);
    add("--eod-mask-loss", o.data.eod_mask_loss ? "given" : "not given");
    add("--reset-attention-mask", o.data.reset_attention_mask ? "given" : "not given");
    add("--receive-ahead", o.receive_ahead == 0 ? "auto" : std::to_string(o.receive_ahead));
    add("--reduction", o.reductions == Reductions::native ? "native" : "ordered");
    add("--c0-margin", o.c0_margin);
    add("--threads-per-rank", o.threads_per_rank);
    add("--load", o.load.empty() ? "not given" : "given");
    add("--finetune", o.finetune ? "given" : "not given");
    add("--save", o.save.empty() ? "not given" : "given");
    add("--save-interval", o.save_interval);
    add("--save-total-limit", o.save_total_limit);
    add("--max-shard-size", o.max_shard_bytes);
    add("--async-save", o.async_save ? "given" : "not given");
    return flags;
}

void check_sizes(const ModelConfig& m) {
    within("--num-layers", m.num_layers, 1, UINT16_MAX);
    within("--hidden-size", m.hidden_size, 1, kLargestSize);
    within("--ffn-hidden-size", m.ffn_hidden_size, 1, kLargestSize);
    within("--num-attention-heads", m.num_attention_heads, 1, kMostHeads);
    within("--num-query-groups", m.num_query_groups, 0, kMostHeads);
    within("--kv-channels", m.kv_channels, 0, kMostHeads);
    const int64_t columns = m.num_attention_heads * m.kv_channels;
    if (columns > kLargestSize) {
        throw UsageError("--kv-channels " + text(m.kv_channels) + ": times --num-attention-heads " +
                         text(m.num_attention_heads) + " is " + text(columns) +
                         ", must be at most " + text(kLargestSize));
    }
    within("--sliding-window", m.sliding_window, 0, INT32_MAX);
    demand(m.norm_epsilon > 0, "--norm-epsilon", m.norm_epsilon, "a finite positive number");
    demand(m.rope.theta > 1, "--rotary-base", m.rope.theta, "a finite number above 1");
    within("--seq-length", m.seq_length, 1, kLargestSize);
    within("--max-position-embeddings", m.max_position_embeddings, 1, INT32_MAX);
}

Mesh mesh_of(const TrainOptions& o, int ranks) {
    const int pipeline = o.pipeline_model_parallel_size;
    if (pipeline == 0) return {ranks, 1};
    if (pipeline < 0 || ranks % pipeline != 0) {
        throw UsageError("--pipeline-model-parallel-size " + text(pipeline) + ": there are " +
                         text(ranks) + " ranks, which must be a multiple of it");
    }
    return {pipeline, ranks / pipeline};
}

void check_options(const TrainOptions& o, int ranks) {
    const ModelConfig& m = o.model;
    const Mesh mesh = mesh_of(o, ranks);
    check_sizes(m);
    m.check();
    not_negative("--init-method-std", m.init_std);
    demand(m.label_smoothing >= 0 && m.label_smoothing < 1, "--label-smoothing", m.label_smoothing,
           "at least 0 and below 1");
    not_negative("--z-loss", m.z_loss);

    within("--micro-batch-size", o.micro_batch_size, 1, kLargestSize);
    within("--global-batch-size", o.global_batch_size, 1, INT64_MAX);
    within("--train-iters", o.train_iters, 1, INT64_MAX);
    if (o.global_batch_size % o.micro_batch_size != 0) {
        throw UsageError("--global-batch-size " + text(o.global_batch_size) +
                         ": must be a multiple of --micro-batch-size " + text(o.micro_batch_size));
    }
    if (o.global_batch_size / o.micro_batch_size % mesh.data != 0) {
        throw UsageError("--global-batch-size " + text(o.global_batch_size) + ": is " +
                         text(o.global_batch_size / o.micro_batch_size) + " microbatches, which " +
                         text(mesh.data) +
                         " replicas of the pipeline must share evenly; use a multiple of " +
                         text(o.micro_batch_size * mesh.data));
    }
    if (o.global_batch_size / o.micro_batch_size / mesh.data > kMostMicrobatches) {
        throw UsageError("--global-batch-size " + text(o.global_batch_size) + ": is " +
                         text(o.global_batch_size / o.micro_batch_size / mesh.data) +
                         " microbatches, at most " + text(kMostMicrobatches) +
                         " fit into a step; use a larger --micro-batch-size");
    }
    (void)learning_rate_schedule(o);
    check_parameter_groups(o.optimizer.groups, logical_parameters(m));
    not_negative("--weight-decay", o.optimizer.weight_decay);
    not_negative("--clip-grad", o.optimizer.clip_grad);
    const char* fraction = "at least 0 and below 1";
    demand(o.optimizer.beta1 >= 0 && o.optimizer.beta1 < 1, "--adam-beta1", o.optimizer.beta1,
           fraction);
    demand(o.optimizer.beta2 >= 0 && o.optimizer.beta2 < 1, "--adam-beta2", o.optimizer.beta2,
           fraction);
    demand(o.optimizer.epsilon > 0, "--adam-eps", o.optimizer.epsilon, "a finite positive number");
    if (o.reductions == Reductions::native && o.device != "host" && o.ranks_are_threads) {
        throw UsageError(
            "--reduction native: copies between GPUs of one process add nothing up; use "
            "--reduction "
            "ordered, or NCCL (mpirun, a GPU per rank)");
    }
    within("--eval-interval", o.evaluation.interval, 1, INT64_MAX);
    within("--eval-iters", o.evaluation.iters, 0, INT32_MAX);
    if (o.evaluation.skip_train && !evaluates(o)) {
        throw UsageError(
            "--skip-train: evaluates, but there is nothing to evaluate on; give --valid-data-path, "
            "--split with a part for it, or --multiple-choice-path");
    }
    for (const auto& [flag, value] :
         {std::pair("--save", &o.save), std::pair("--report", &o.report),
          std::pair("--profile", &o.profile), std::pair("--trace-dir", &o.trace_dir)}) {
        if (!o.evaluation.skip_train || value->empty()) continue;
        throw UsageError(std::string(flag) + " " + *value +
                         ": is written by training; leave it out with --skip-train");
    }
    within("--log-interval", o.log_interval, 1, INT64_MAX);
    within("--tensorboard-log-interval", o.tensorboard_log_interval, 1, INT64_MAX);
    within("--exit-interval", o.exit_interval, 0, INT64_MAX);
    if (o.exit_duration_minutes) {
        demand(*o.exit_duration_minutes > 0, "--exit-duration-in-mins", *o.exit_duration_minutes,
               "a finite positive number of minutes");
    }
    within("--save-interval", o.save_interval, 0, INT64_MAX);
    within("--save-total-limit", o.save_total_limit, 0, INT64_MAX);
    if (o.save.empty() && o.save_interval > 0) {
        throw UsageError("--save-interval " + text(o.save_interval) +
                         ": says when, --save DIR must say where");
    }
    if (o.save.empty() && o.save_total_limit > 0) {
        throw UsageError("--save-total-limit " + text(o.save_total_limit) +
                         ": limits the steps in --save DIR, which is not given");
    }
    if (o.save.empty() && o.async_save) {
        throw UsageError("--async-save: says how, --save DIR must say where");
    }
    if (o.load.empty() && o.finetune) {
        throw UsageError("--finetune: needs --load DIR, the weights to begin with");
    }
    within("--threads-per-rank", o.threads_per_rank, 0, 1024);
    within("--chunks", o.chunks, 0, UINT16_MAX);
    within("--decoder-first-pipeline-num-layers", o.end_layers.first, -1, m.num_layers);
    within("--decoder-last-pipeline-num-layers", o.end_layers.last, -1, m.num_layers);
    if (o.end_layers.given() && (!o.layout.empty() || o.vocab_mode == VocabMode::redistributed)) {
        throw UsageError(
            "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers: " +
            (o.layout.empty() ? std::string("--vocab-mode redistributed")
                              : "--pipeline-model-parallel-layout " + o.layout) +
            " says where layers are already; leave one of them out");
    }
    within("--num-layers-per-virtual-pipeline-stage", o.layers_per_chunk, 0, UINT16_MAX);
    within("--group-size", o.group_size, 0, INT32_MAX);
    within("--memory-limit", o.memory_limit, 0, INT32_MAX);
    within("--warm-up-depth", o.warm_up_depth, 0, INT32_MAX);
    within("--search-moves", o.search_moves, 0, int64_t{1} << 40);
    const bool may_be_empty = o.end_layers.given() || !o.layout.empty();
    if (m.num_layers < mesh.pipeline && o.vocab_mode != VocabMode::redistributed && !may_be_empty) {
        throw UsageError("--num-layers " + text(m.num_layers) +
                         ": must be at least the number of ranks, " + text(mesh.pipeline) +
                         "; use more layers or fewer ranks");
    }
}

void check_same_options(Communicator& communicator, const TrainOptions& options) {
    check_same_on_every_rank(communicator, shared_flags(options), ExitCode::usage,
                             "start every rank with the same flags and the same program");
}

}  // namespace vocabpipe

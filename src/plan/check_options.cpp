// SPDX-License-Identifier: Apache-2.0
#include "src/plan/check_options.hpp"

#include "src/model/frozen_parameters.hpp"
#include "src/model/parameters.hpp"
#include "src/plan/planned_config.hpp"
#include "src/support/text_layout.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>

namespace vocabpipe {

namespace {

void require(const std::string& flag, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return;
    throw UsageError(flag + " " + std::to_string(value) + ": must be from " +
                     std::to_string(least) + " to " + std::to_string(most));
}

/// Refuses what would be beyond 63 bits in products of sizes: far above any model.
void check_sizes(const PlannedModel& model) {
    const ModelConfig& c = model.config;
    for (const auto& [name, size, most] :
         {std::tuple<const char*, int64_t, int64_t>{"layers", c.num_layers, 1 << 16},
          {"hidden size", c.hidden_size, 1 << 24},
          {"feed-forward size", c.ffn_hidden_size, 1 << 24},
          {"attention heads", c.num_attention_heads, 1 << 16},
          {"learned positions", c.learned_positions ? c.max_position_embeddings : 1,
           int64_t{1} << 32}}) {
        require("model " + model.name + ": " + name, size, 1, most);
    }
}

/// Refuses what measured times say nothing of; they are for ranks that share no layer.
void check_measured(const PlanOptions& options) {
    if (!options.profile && !options.pass_times) return;
    const std::string flag = options.profile ? "--profile" : "--pass-times";
    const auto alone = [](const std::vector<int>& list) {
        return std::all_of(list.begin(), list.end(), [](int ranks) { return ranks == 1; });
    };
    if (!alone(options.tensor) || !alone(options.context) || !alone(options.expert) ||
        !alone(options.expert_tensor)) {
        throw UsageError(flag +
                         ": has times of ranks that share no layer, which says nothing of tensor, "
                         "context or expert ranks; use --gpu, or sizes of 1");
    }
    if (options.profile && options.micro_batch_sizes.size() != 1) {
        throw UsageError(flag + ": was measured with one --micro-batch-size; list no others");
    }
    if (options.profile && options.memory_gib == 0) {
        throw UsageError(
            "--memory-gib: is required with --profile, because a profile does not record the size "
            "of the memory");
    }
    if (options.profile && options.profile->sizes.tensor > 1) {
        throw UsageError("--profile: was measured with --tensor-model-parallel-size " +
                         std::to_string(options.profile->sizes.tensor) +
                         ", which plans from a profile have none of; measure without");
    }
    if (!options.pass_times || !options.pipeline.empty() || !options.data.empty()) return;
    if (options.pass_times->rank_ns.size() != static_cast<size_t>(options.gpus)) {
        throw UsageError("--gpus " + std::to_string(options.gpus) +
                         ": does not match the passes of " + options.pass_times->name +
                         ", which are for " +
                         counted(std::ssize(options.pass_times->rank_ns), "rank"));
    }
}

/// A split that the user gives must hold the model's layers.
void check_layers(const PlanOptions& options) {
    const std::vector<int>& layers = options.layers_per_stage;
    if (layers.empty()) return;
    int64_t sum = 0;
    for (const int count : layers) {
        require("--layers-per-stage", count, 0, options.model.config.num_layers);
        sum += count;
    }
    if (sum == options.model.config.num_layers) return;
    throw UsageError("--layers-per-stage: has " + std::to_string(sum) + " layers, but " +
                     options.model.name + " has " +
                     std::to_string(options.model.config.num_layers));
}

/// What plans of models that predict several tokens leave out.
void check_depths(const PlanOptions& options) {
    const int depths = options.model.config.mtp_num_layers;
    if (depths == 0 || options.frozen.empty()) return;
    throw UsageError(
        "--param-group: plans with frozen parameters count no depths of multi-token "
        "prediction, and " +
        options.model.name + " has " + std::to_string(depths) + "; use --mtp-num-layers 0");
}

/// Refuses a trainer beside a profile, which was measured with one.
void check_trainer(const PlanOptions& options) {
    const PlannedTrainer& trainer = options.trainer;
    require("--recompute-num-layers", trainer.recompute_layers, 0, 1 << 16);
    require("--zero-stage", trainer.zero, 0, 3);
    require("--exchange-percent", trainer.exchange_percent, 0, 100);
    if (trainer.exchange_percent > 0 && trainer.blocking_exchanges) {
        throw UsageError("--exchange-percent " + std::to_string(trainer.exchange_percent) +
                         ": with --blocking-exchanges, pairs run one after the other; leave out "
                         "one of both");
    }
    if (options.profile && trainer.zero > 1) {
        throw UsageError("--zero-stage " + std::to_string(trainer.zero) +
                         ": plans from a --profile have what it measured, which is stage 1; leave "
                         "it out, or use --gpu");
    }
    if (options.profile && trainer != PlannedTrainer()) {
        throw UsageError(
            "--profile: was measured with train_gpt; leave out what describes "
            "another trainer, or use --gpu");
    }
    if (trainer.fp8 && options.device.fp8_speedup.value == 1) {
        throw UsageError("--fp8: " + options.device.name +
                         " multiplies 8-bit floats no faster (fp8_speedup); leave it out");
    }
}

}  // namespace

void check_options(const PlanOptions& options) {
    if (options.model.config.model_forward) {
        throw UsageError(
            "make_plan: plans chains of layers; of a model of your own "
            "(ModelConfig::model_forward) compare plan_step() of several schedules by simulate()");
    }
    check_sizes(options.model);
    require("--gpus", options.gpus, 1, 1 << 14);
    require("--seq-length", options.seq_length, 1, int64_t{1} << 24);
    for (const int64_t size : options.micro_batch_sizes) {
        require("--micro-batch-size", size, 1, 1 << 16);
    }
    for (const auto& [flag, list] : {std::pair{"--tensor-model-parallel-size", &options.tensor},
                                     {"--context-parallel-size", &options.context},
                                     {"--pipeline-model-parallel-size", &options.pipeline},
                                     {"--data-parallel-size", &options.data},
                                     {"--expert-model-parallel-size", &options.expert},
                                     {"--expert-tensor-parallel-size", &options.expert_tensor}}) {
        for (const int ranks : *list) require(flag, ranks, 1, options.gpus);
    }
    if (!std::isfinite(options.moe_imbalance) || options.moe_imbalance < 1) {
        throw UsageError("--moe-imbalance " + std::to_string(options.moe_imbalance) +
                         ": must be at least 1, where all ranks have equally many rows");
    }
    check_layers(options);
    check_trainer(options);
    check_depths(options);
    require("--global-batch-size", options.global_batch_size, 1, int64_t{1} << 24);
    if (!std::isfinite(options.memory_gib) || options.memory_gib < 0 || options.memory_gib > 1e6) {
        throw UsageError("--memory-gib " + std::to_string(options.memory_gib) +
                         ": must be above 0 and at most 1000000");
    }
    for (const int chunks : options.chunks) require("--chunks", chunks, 1, 1 << 10);
    require("--threads", options.threads, 0, 1 << 10);
    require("--sensitivity-rows", options.sensitivity_rows, 0, 1 << 10);
    const ModelConfig& config = options.model.config;
    if (config.learned_positions && options.seq_length > config.max_position_embeddings) {
        throw UsageError("--seq-length " + std::to_string(options.seq_length) + ": " +
                         options.model.name + " has " +
                         std::to_string(config.max_position_embeddings) +
                         " learned positions; use a shorter sequence or edit the model's file");
    }
    const auto divides = [&](int64_t size) { return options.global_batch_size % size == 0; };
    if (std::none_of(options.micro_batch_sizes.begin(), options.micro_batch_sizes.end(), divides)) {
        throw UsageError("--global-batch-size " + std::to_string(options.global_batch_size) +
                         ": must be a multiple of --micro-batch-size " +
                         std::to_string(options.micro_batch_sizes.front()));
    }
    check_measured(options);
    check_frozen(logical_parameters(options.model.config), options.frozen);
    planned_config(options).check();
}

}  // namespace vocabpipe

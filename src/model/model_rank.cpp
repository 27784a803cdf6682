// SPDX-License-Identifier: Apache-2.0
#include "src/model/model_rank.hpp"

#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

std::vector<StageLayers> stages_of(const ModelConfig& config, const ModelPartition& partition) {
    std::vector<StageLayers> stages;
    int first = 0;
    for (const int count : partition.layers_per_stage) {
        stages.push_back({.first = first, .count = count});
        first += count;
    }
    if (first != config.num_layers) {
        throw UsageError("the stages hold " + std::to_string(first) + " layers, --num-layers is " +
                         std::to_string(config.num_layers));
    }
    stages.front().positions = true;
    stages.back().final_norm = true;
    return stages;
}

/// All of a rank's parameters: its stages', then its input rows, then its output rows.
std::vector<ParameterRows> rank_parameters(const ModelConfig& config,
                                           const ModelPartition& partition,
                                           const Schedule& schedule, int rank) {
    std::vector<ParameterRows> rows;
    const std::vector<StageLayers> stages = stages_of(config, partition);
    for (size_t s = 0; s < stages.size(); ++s) {
        if (schedule.rank_of_stage[s] != rank) continue;
        const std::vector<ParameterRows> stage = stage_parameters(config, stages[s]);
        rows.insert(rows.end(), stage.begin(), stage.end());
    }
    const bool input = schedule.input.rows(rank) > 0;
    if (input) {
        rows.push_back({.id = wte_id(),
                        .first_row = schedule.input.begin(rank),
                        .rows = schedule.input.rows(rank)});
    }
    if (schedule.output.rows(rank) > 0) {
        rows.push_back({.id = output_id(config),
                        .first_row = schedule.output.begin(rank),
                        .rows = schedule.output.rows(rank),
                        .shares_previous_weight = config.tied && input,
                        .counted_elsewhere = config.tied});
    }
    return rows;
}

const kernels::Operators& operators_of(const ModelPartition& partition) {
    return partition.operators != nullptr ? *partition.operators : kernels::host::operators();
}

}  // namespace

int64_t report_slots(const ModelConfig& config) {
    return static_cast<int64_t>(logical_parameters(config).size()) + 2;
}

StepSizes step_sizes(const ModelConfig& config, const ModelPartition& partition,
                     const Schedule& schedule) {
    StepSizes sizes;
    sizes.tokens = partition.micro_batch_size * config.seq_length;
    sizes.hidden = config.hidden_size;
    sizes.dtype = config.dtype;
    for (const StageLayers& stage : stages_of(config, partition)) {
        sizes.stages.push_back(TransformerStage(config, stage, operators_of(partition),
                                                partition.micro_batch_size,
                                                partition.threads_per_rank, {})
                                   .bytes());
    }
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        sizes.shards.push_back(output_shard_bytes(operators_of(partition), sizes.tokens,
                                                  sizes.hidden, schedule.output.rows(rank),
                                                  config.dtype));
    }
    sizes.tied = config.tied;
    sizes.report_bytes = partition.optimizer ? report_slots(config) * 8 : 0;
    return sizes;
}

PersistentBytes persistent_bytes(const ModelConfig& config, const ModelPartition& partition,
                                 const Schedule& schedule, int rank) {
    return persistent_bytes(config, rank_parameters(config, partition, schedule, rank));
}

uint64_t stored_bytes(const ModelConfig& config, const ModelPartition& partition,
                      const Schedule& schedule, int rank) {
    const std::vector<LogicalParameter> logical = logical_parameters(config);
    const int64_t fp32_values = config.dtype == DType::fp32 ? 2 : 3;  // moments, masters
    int64_t bytes = 0;
    for (const ParameterRows& part : rank_parameters(config, partition, schedule, rank)) {
        if (part.counted_elsewhere || part.shares_previous_weight) continue;
        bytes += part.rows * logical[static_cast<size_t>(part.id)].cols *
                 (size_of(config.dtype) + fp32_values * size_of(DType::fp32));
    }
    return static_cast<uint64_t>(bytes);
}

ModelRank::ModelRank(const ModelConfig& config, const ModelPartition& partition,
                     const Schedule& schedule, int rank, Device& device)
    : config_(config),
      device_(device),
      store_(device, config, rank_parameters(config, partition, schedule, rank),
             "rank " + std::to_string(rank)) {
    std::span<Parameter> rest = store_.parameters();
    const auto take = [&](size_t count) {
        const std::span<Parameter> part = rest.first(count);
        rest = rest.subspan(count);
        return part;
    };
    const std::vector<StageLayers> stages = stages_of(config, partition);
    stages_.resize(stages.size());
    for (size_t s = 0; s < stages.size(); ++s) {
        if (schedule.rank_of_stage[s] != rank) continue;
        stages_[s] = std::make_unique<TransformerStage>(
            config, stages[s], device.operators(), partition.micro_batch_size,
            partition.threads_per_rank, take(stage_parameters(config, stages[s]).size()));
    }
    if (schedule.input.rows(rank) > 0) input_.emplace(take(1));
    if (schedule.output.rows(rank) > 0) {
        output_.emplace(device, take(1), partition.micro_batch_size * config.seq_length,
                        kernels::LossOptions{.label_smoothing = config.label_smoothing,
                                             .z_loss = config.z_loss});
    }
}

RankModules ModelRank::modules() {
    RankModules modules;
    for (const auto& stage : stages_) modules.stages.push_back(stage.get());
    modules.input = input();
    modules.output = output();
    return modules;
}

}  // namespace vocabpipe

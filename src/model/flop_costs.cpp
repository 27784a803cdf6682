// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/flop_costs.hpp"

#include "src/model/blocks/model_layers.hpp"
#include "src/model/tensor_shard.hpp"
#include "src/model/trained_tensors.hpp"
#include "vocabpipe/model_flops.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace vocabpipe {

namespace {

constexpr double kBytesPerNs = 20;

/// Nanoseconds per token of a selective R: the mean of all layers.
double recomputing_ns(const ModelConfig& config) {
    if (config.num_layers == 0) return 0;
    const ModelLayers layers(config);
    int64_t elements = 0;
    double flops = 0;
    for (int layer = 0; layer < layers.count(); ++layer) {
        const BlockWork work = layers[layer].block.work(config.seq_length);
        elements += work.moved.recompute;
        flops += work.recompute_flops;
    }
    const double moving = static_cast<double>(elements * size_of(config.dtype)) / kBytesPerNs;
    return (moving + flops / kNominalFlopsPerNs) / config.num_layers;
}

/// [stage] Per token, of a model of the user's, whose layers all differ; else empty.
std::vector<double> flops_by_stage(const ModelConfig& config,
                                   const std::vector<int>& layers_per_stage) {
    std::vector<double> stages;
    if (!config.model_forward) return stages;
    const std::vector<double> layers = layer_flops_per_token(config);
    auto layer = layers.begin();
    for (const int count : layers_per_stage) {
        stages.push_back(std::reduce(layer, layer + count));
        layer += count;
    }
    return stages;
}

}  // namespace

TableCosts flop_costs(const ModelConfig& config, const ModelPartition& partition,
                      const Schedule& schedule) {
    const auto tokens = static_cast<double>(partition.tokens(config));
    const auto h = static_cast<double>(config.hidden_size);
    const double layer_flops =
        config.num_layers == 0 ? 0 : layers_flops_per_token(config) / config.num_layers;
    const std::vector<double> own = flops_by_stage(config, partition.layers_per_stage);
    const auto ns = [](double value) { return std::max<int64_t>(std::llround(value), 1); };
    const auto set = [](TableCosts::OpCosts& costs, Op op, int64_t value) {
        costs[static_cast<size_t>(op)] = value;
    };
    const double recomputed = recomputing_ns(config);
    TableCosts costs;
    const TrainedTensors tensors(config, ModelLayers(config), partition.frozen);
    const std::vector<double> trained = tensors.stage_shares(partition.layers_per_stage);
    for (size_t s = 0; s < partition.layers_per_stage.size(); ++s) {
        const int layers = partition.layers_per_stage[s];
        TableCosts::OpCosts stage{};
        const bool last = s + 1 == partition.layers_per_stage.size();
        const double flops =
            own.empty() ? layers * layer_flops + (last ? mtp_flops_per_token(config) : 0) : own[s];
        const double forward =
            flops * tokens / kNominalFlopsPerNs / static_cast<double>(partition.tensor);
        set(stage, Op::F, ns(forward));
        set(stage, Op::B, ns(forward + trained[s] * forward));
        set(stage, Op::I, ns(forward));
        set(stage, Op::W, ns(trained[s] * forward));
        if (partition.recompute == Recompute::full) set(stage, Op::R, ns(forward));
        if (partition.recompute == Recompute::selective) {
            const int recomputing = layers + (last ? config.mtp_num_layers : 0);
            set(stage, Op::R, ns(recomputing * recomputed * tokens / partition.tensor));
        }
        costs.stage_ns.push_back(stage);
    }
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        TableCosts::OpCosts shard{};
        const double gemm =
            2 * tokens * config.predicted_tokens() * h *
            static_cast<double>(largest_part(schedule.output.rows(rank), partition.tensor)) /
            kNominalFlopsPerNs;
        const bool one = schedule.barriers == Barriers::one;
        set(shard, Op::S, ns(one ? 2 * gemm : gemm));
        const double weight_gradient = tensors.output() ? gemm : 0;
        set(shard, Op::T, ns(one ? weight_gradient : gemm + weight_gradient));
        const int64_t rows =
            ns(tokens * h * static_cast<double>(size_of(config.dtype)) / kBytesPerNs);
        set(shard, Op::E, rows);
        set(shard, Op::G, rows);
        costs.rank_ns.push_back(shard);
    }
    costs.layers_per_stage = config.num_layers / static_cast<double>(schedule.stages);
    costs.slices = partition.mesh(schedule.ranks).slices();
    costs.latency_ns = 1000;
    costs.bytes_per_ns = 3.7;
    costs.local_bytes_per_ns = kBytesPerNs;
    return costs;
}

}  // namespace vocabpipe

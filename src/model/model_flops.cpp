// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/model_flops.hpp"

#include "src/model/blocks/counted_depth.hpp"
#include "src/model/blocks/model_layers.hpp"

#include <numeric>
#include <vector>

namespace vocabpipe {

namespace {

double output_flops_per_token(const ModelConfig& config) {
    if (!config.has_output_layer) return 0;
    return 2.0 * config.predicted_tokens() * static_cast<double>(config.hidden_size) *
           static_cast<double>(config.vocab_size);
}

double mean_layer_flops(const ModelConfig& config) {
    return layers_flops_per_token(config) / config.num_layers;
}

}  // namespace

std::vector<double> layer_flops_per_token(const ModelConfig& config) {
    return ModelLayers(config).map(
        [&](const CountedLayer& layer) { return layer.block.work(config.seq_length).flops(); });
}

double layers_flops_per_token(const ModelConfig& config) {
    const std::vector<double> flops = layer_flops_per_token(config);
    return std::accumulate(flops.begin(), flops.end(), 0.0);
}

double layers_flops_of_sequence(ModelConfig config, int64_t seq_length) {
    config.seq_length = seq_length;
    return static_cast<double>(seq_length) * layers_flops_per_token(config);
}

double forward_flops_per_token(const ModelConfig& config) {
    return layers_flops_per_token(config) + mtp_flops_per_token(config) +
           output_flops_per_token(config);
}

double mtp_flops_per_token(const ModelConfig& config) {
    if (config.mtp_num_layers == 0 || config.num_layers == 0) return 0;
    return config.mtp_num_layers * CountedDepth(config).work(config.seq_length).flops();
}

double output_layer_in_layers(const ModelConfig& config) {
    return output_flops_per_token(config) / mean_layer_flops(config);
}

double mtp_in_layers(const ModelConfig& config) {
    return config.num_layers == 0 ? 0 : mtp_flops_per_token(config) / mean_layer_flops(config);
}

LengthShares length_shares(const ModelConfig& config, Recompute recompute, int64_t seq_length) {
    const double tokens = static_cast<double>(seq_length) / static_cast<double>(config.seq_length);
    double layers = tokens;
    if (config.num_layers > 0) {
        ModelConfig shorter = config;
        shorter.seq_length = seq_length;
        layers *= layers_flops_per_token(shorter) / layers_flops_per_token(config);
    }
    return LengthShares::of(layers, tokens, recompute == Recompute::selective ? tokens : layers);
}

}  // namespace vocabpipe

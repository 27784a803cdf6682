// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/model_flops.hpp"

#include "src/model/blocks/layer_options.hpp"

namespace vocabpipe {

namespace {

double output_flops_per_token(const ModelConfig& config) {
    return 2.0 * static_cast<double>(config.hidden_size) * static_cast<double>(config.vocab_size);
}

}  // namespace

double layers_flops_per_token(const ModelConfig& config) {
    HeldParameters none;
    double flops = 0;
    for (int layer = 0; layer < config.num_layers; ++layer) {
        flops += DecoderLayer(decoder_layer_options(config, layer), none)
                     .work(config.seq_length)
                     .flops();
    }
    return flops;
}

double forward_flops_per_token(const ModelConfig& config) {
    return layers_flops_per_token(config) + output_flops_per_token(config);
}

double output_layer_in_layers(const ModelConfig& config) {
    return output_flops_per_token(config) / (layers_flops_per_token(config) / config.num_layers);
}

}  // namespace vocabpipe

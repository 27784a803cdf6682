// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/counted_depth.hpp"

namespace vocabpipe {

CountedDepth::CountedDepth(const ModelConfig& config, const LayerTeams& teams)
    : hidden_norm(final_norm_options(config), parameters),
      embedding_norm(final_norm_options(config), parameters),
      projection({.out = {config.hidden_size}, .in = 2 * config.hidden_size}, parameters),
      layer(decoder_layer_options(config, config.num_layers - 1, teams), parameters),
      final_norm(final_norm_options(config), parameters) {}

BlockWork CountedDepth::work(int64_t seq_length) const {
    BlockWork work = layer.work(seq_length);
    work.products.push_back(projection.product());
    for (const Norm* norm : {&hidden_norm, &embedding_norm, &final_norm}) {
        work.moved.add(norm->moved());
        work.moved_of_residual.add(norm->moved());
    }
    return work;
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/counted_depth.hpp"

namespace vocabpipe {

CountedDepth::CountedDepth(const ModelConfig& config, const LayerTeams& teams)
    : projection(depth_projection_options(config, 0), parameters),
      layer(config, config.num_layers, teams, parameters),
      final_norm(depth_norm_options(config, 0), parameters) {}

BlockWork CountedDepth::work(int64_t seq_length) const {
    BlockWork work = projection.work();
    work.add(layer.work(seq_length));
    work.moved.add(final_norm.moved());
    work.moved_of_residual.add(final_norm.moved());
    return work;
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "src/step/costs/length_sizes.hpp"

#include <cmath>

namespace vocabpipe {

LengthSizes length_sizes(const StepSizes& sizes, int64_t seq_length, int64_t longest) {
    const double share = static_cast<double>(seq_length) / static_cast<double>(longest);
    const auto scale = [share](int64_t& bytes) {
        bytes = std::llround(std::ceil(static_cast<double>(bytes) * share));
    };
    LengthSizes scaled{.tokens = sizes.tokens / longest * seq_length +
                                 sizes.tokens % longest * seq_length / longest,
                       .stages = sizes.stages,
                       .shards = sizes.shards};
    for (StageBytes& stage : scaled.stages) {
        for (int64_t StageBytes::*bytes :
             {&StageBytes::saved, &StageBytes::recomputed, &StageBytes::for_weight,
              &StageBytes::forward_workspace, &StageBytes::backward_workspace,
              &StageBytes::input_gradient_workspace, &StageBytes::weight_gradient_workspace}) {
            scale(stage.*bytes);
        }
    }
    for (ShardBytes& shard : scaled.shards) {
        scale(shard.exp_logits);
        scale(shard.score_workspace);
        scale(shard.weight_gradient_workspace);
    }
    return scaled;
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"
#include "vocabpipe/schedule.hpp"

namespace vocabpipe::testing {

/// The placement of a model on one rank: one stage, one microbatch, the whole vocabulary. No
/// passes.
[[nodiscard]] inline Schedule one_rank_schedule(const ModelConfig& config) {
    Schedule alone{.ranks = 1, .stages = 1, .microbatches = 1, .rank_of_stage = {0}};
    alone.input = alone.output = ShardMap::whole(config.vocab_size, 1, 0);
    return alone;
}

}  // namespace vocabpipe::testing

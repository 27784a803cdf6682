// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/profile.hpp"

namespace vocabpipe::testing {

/// Of two stages on two ranks, F 1000 ns and B 2000 ns; a vocabulary of
/// six rows, half on each rank.
[[nodiscard]] inline Profile small_profile() {
    Profile profile;
    profile.model = {.layers = 2,
                     .hidden = 8,
                     .ffn_hidden = 32,
                     .heads = 2,
                     .seq_length = 4,
                     .micro_batch_size = 1,
                     .vocab = 6,
                     .layers_per_stage = {1, 1}};
    profile.rank_of_stage = {0, 1};
    profile.input = profile.output = ShardMap::even(6, 2);
    profile.costs = TableCosts::uniform(2, 2, 1000, 2000, 0);
    profile.sizes.tokens = 4;
    profile.sizes.hidden = 8;
    profile.sizes.stages.resize(2);
    profile.sizes.shards.resize(2);
    profile.persistent.resize(2);
    return profile;
}

}  // namespace vocabpipe::testing

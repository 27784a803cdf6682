// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/profile.hpp"

namespace vocabpipe::testing {

/// A profile of 2 ranks with one layer on each: F 1 ms, B 2 ms, S and T 0.5 ms.
[[nodiscard]] inline Profile small_profile() {
    Profile profile;
    profile.host = profile.device = profile.command = "made up";
    profile.model = {.layers = 2,
                     .hidden = 8,
                     .ffn_hidden = 32,
                     .heads = 2,
                     .seq_length = 16,
                     .micro_batch_size = 1,
                     .vocab = 100,
                     .layers_per_stage = {1, 1}};
    profile.rank_of_stage = {0, 1};
    profile.input = profile.output = ShardMap::even(100, 2);
    profile.barriers = Barriers::one;
    profile.costs = TableCosts::uniform(2, 2, 1'000'000, 2'000'000, 500'000);
    profile.costs.latency_ns = 1000;
    profile.sizes.tokens = 16;
    profile.sizes.hidden = 8;
    profile.sizes.report_bytes = 64;
    profile.sizes.stages.assign(2, {.saved = 4096, .for_weight = 1024});
    profile.sizes.shards.assign(2, {.exp_logits = 3200});
    profile.persistent.assign(2, {.weights = 1 << 20, .gradients = 1 << 20, .optimizer = 2 << 20});
    return profile;
}

}  // namespace vocabpipe::testing

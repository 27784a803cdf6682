// SPDX-License-Identifier: Apache-2.0
#include "src/plan/profiled_model.hpp"

#include "src/model/blocks/model_layers.hpp"

#include <cstdint>

namespace vocabpipe {

namespace {

/// Bytes of a token that F leaves and a selective R makes again.
int64_t recomputed_bytes(const CountedLayer& layer, DType dtype) {
    Views costly, cheap(int64_t{1});
    SavedViews views{.costly = {costly, 1, dtype}, .cheap = {cheap, 1, dtype}};
    (void)layer.block.saved_views(views);
    return cheap.used();
}

}  // namespace

ModelConfig profiled_config(const Profile& profile) {
    const ProfiledModel& model = profile.model;
    return {.num_layers = model.layers,
            .hidden_size = model.hidden,
            .ffn_hidden_size = model.ffn_hidden,
            .num_attention_heads = model.heads,
            .seq_length = model.seq_length,
            .max_position_embeddings = model.seq_length,
            .vocab_size = model.vocab,
            .tied = profile.sizes.tied};
}

SelectiveWork selective_work(const Profile& profile) {
    ModelConfig config = profiled_config(profile);
    config.num_attention_heads = 1;  // they do not matter here, and some profiles have none
    const CountedLayer layer(config, 0, {});
    const BlockWork work = layer.block.work(config.seq_length);
    return {.elements = static_cast<double>(work.moved.recompute),
            .bytes = recomputed_bytes(layer, profile.sizes.dtype)};
}

}  // namespace vocabpipe

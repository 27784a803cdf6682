// SPDX-License-Identifier: Apache-2.0
#include "src/model/parameters.hpp"

#include "src/model/blocks/layer_options.hpp"

#include <utility>

namespace vocabpipe {

namespace {

TensorNames names_of(ModelFamily family) {
    if (family == ModelFamily::gpt2) {
        return {.embedding = "transformer.wte",
                .positions = "transformer.wpe",
                .layers = "transformer.h.",
                .final_norm = "transformer.ln_f",
                .attention_norm = "ln_1",
                .qkv = "attn.c_attn",
                .proj = "attn.c_proj",
                .post_attention_norm = {},
                .mlp_norm = "ln_2",
                .fc = "mlp.c_fc",
                .fc_proj = "mlp.c_proj",
                .post_mlp_norm = {},
                .transposed = true};
    }
    // In Llama's files "post_attention_layernorm" is what the MLP begins with; in Gemma 2's it
    // normalises what attention adds to the residual.
    const bool gemma = family == ModelFamily::gemma2;
    return {.embedding = "model.embed_tokens",
            .positions = {},
            .layers = "model.layers.",
            .final_norm = "model.norm",
            .attention_norm = "input_layernorm",
            .qkv = "self_attn.qkv_proj",
            .proj = "self_attn.o_proj",
            .post_attention_norm = "post_attention_layernorm",
            .mlp_norm = gemma ? "pre_feedforward_layernorm" : "post_attention_layernorm",
            .fc = "mlp.gate_up_proj",
            .fc_proj = "mlp.down_proj",
            .post_mlp_norm = "post_feedforward_layernorm",
            .q_norm = "self_attn.q_norm",
            .k_norm = "self_attn.k_norm",
            .qkv_parts = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
            .fc_parts = {"mlp.gate_proj", "mlp.up_proj"}};
}

}  // namespace

TensorNames tensor_names(const ModelConfig& config) {
    return names_of(config.family);
}

ModelParameters model_parameters(const ModelConfig& c) {
    const TensorNames names = tensor_names(c);
    ParameterList list;
    ModelParameters parameters;
    const auto list_vocabulary_matrix = [&](const std::string& name) {
        list.next({.name = name + ".weight",
                   .rows = c.vocab_size,
                   .cols = c.hidden_size,
                   .init_std = c.init_std,
                   .weight_decay = true});
    };
    auto listed_since = [&, last = 0]() mutable {
        const int first = std::exchange(last, list.size());
        return ParameterRange{.first = first, .end = last};
    };
    // Constructors of blocks list their parameters.
    list_vocabulary_matrix(names.embedding);
    parameters.embedding = listed_since().first;
    EmbeddedTokens(embedded_tokens_options(c), list);
    parameters.positions = listed_since();
    for (int layer = 0; layer < c.num_layers; ++layer) {
        DecoderLayer(decoder_layer_options(c, layer), list);
        parameters.layers.push_back(listed_since());
    }
    Norm(final_norm_options(c), list);
    parameters.final_norm = listed_since();
    if (!c.tied) list_vocabulary_matrix(names.output);
    parameters.output = c.tied ? parameters.embedding : listed_since().first;
    parameters.all = list.take();
    return parameters;
}

}  // namespace vocabpipe

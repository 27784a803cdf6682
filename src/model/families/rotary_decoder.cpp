// SPDX-License-Identifier: Apache-2.0
#include "src/model/families/rotary_decoder.hpp"

namespace vocabpipe {

void set_rotary_decoder(ModelConfig& c) {
    c.normalization = Normalization::rms_norm;
    c.norm_epsilon = 1e-6F;
    c.learned_positions = false;
    c.gated = true;
    c.activation = kernels::Activation::silu;
    c.qkv_bias = false;
    c.attention_output_bias = false;
    c.mlp_bias = false;
}

TensorNames rotary_decoder_names() {
    return {.embedding = "model.embed_tokens",
            .positions = {},
            .layers = "model.layers.",
            .final_norm = "model.norm",
            .attention_norm = "input_layernorm",
            .qkv = "self_attn.qkv_proj",
            .proj = "self_attn.o_proj",
            .post_attention_norm = {},
            .mlp_norm = "post_attention_layernorm",
            .fc = "mlp.gate_up_proj",
            .fc_proj = "mlp.down_proj",
            .post_mlp_norm = {},
            .q_norm = "self_attn.q_norm",
            .k_norm = "self_attn.k_norm",
            .sinks = "self_attn.sinks",
            .qkv_parts = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
            .fc_parts = {"mlp.gate_proj", "mlp.up_proj"},
            .body = "model."};
}

}  // namespace vocabpipe

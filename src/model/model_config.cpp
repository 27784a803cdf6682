// SPDX-License-Identifier: Apache-2.0
#include "src/model/model_config.hpp"

#include "vocabpipe/error.hpp"

#include <cmath>

namespace vocabpipe {

void ModelConfig::check() const {
    const auto at_least = [](const char* flag, int64_t value, int64_t limit) {
        if (value < limit) {
            throw UsageError(std::string(flag) + " " + std::to_string(value) +
                             ": must be at least " + std::to_string(limit));
        }
    };
    at_least("--num-layers", num_layers, 1);
    at_least("--hidden-size", hidden_size, 1);
    at_least("--ffn-hidden-size", ffn_hidden_size, 1);
    at_least("--num-attention-heads", num_attention_heads, 1);
    at_least("--seq-length", seq_length, 1);
    at_least("--vocab-size", vocab_size, 1);
    if (vocab_size > INT32_MAX) {
        throw UsageError("--vocab-size " + std::to_string(vocab_size) +
                         ": token ids are 32-bit, at most 2147483647");
    }
    if (hidden_size % num_attention_heads != 0) {
        throw UsageError("--num-attention-heads " + std::to_string(num_attention_heads) +
                         ": must divide --hidden-size " + std::to_string(hidden_size));
    }
    if (max_position_embeddings < seq_length) {
        throw UsageError("--max-position-embeddings " + std::to_string(max_position_embeddings) +
                         ": must be at least --seq-length " + std::to_string(seq_length));
    }
}

std::vector<LogicalParameter> logical_parameters(const ModelConfig& c) {
    const int64_t h = c.hidden_size;
    const int64_t f = c.ffn_hidden_size;
    // GPT-2 scales the projections into the residual stream by 1/sqrt(2 L).
    const float into_residual = c.init_std / std::sqrt(2.0F * static_cast<float>(c.num_layers));
    std::vector<LogicalParameter> all;
    const auto matrix = [&](const std::string& name, int64_t rows, int64_t cols, float std) {
        all.push_back({name, rows, cols, std, 0, true});
    };
    const auto constant = [&](const std::string& name, int64_t cols, float value) {
        all.push_back({name, 1, cols, 0, value, false});
    };
    matrix("transformer.wte.weight", c.vocab_size, h, c.init_std);
    matrix("transformer.wpe.weight", c.max_position_embeddings, h, c.init_std);
    for (int layer = 0; layer < c.num_layers; ++layer) {
        const std::string at = "transformer.h." + std::to_string(layer);
        constant(at + ".ln_1.weight", h, 1);
        constant(at + ".ln_1.bias", h, 0);
        matrix(at + ".attn.c_attn.weight", 3 * h, h, c.init_std);
        constant(at + ".attn.c_attn.bias", 3 * h, 0);
        matrix(at + ".attn.c_proj.weight", h, h, into_residual);
        constant(at + ".attn.c_proj.bias", h, 0);
        constant(at + ".ln_2.weight", h, 1);
        constant(at + ".ln_2.bias", h, 0);
        matrix(at + ".mlp.c_fc.weight", f, h, c.init_std);
        constant(at + ".mlp.c_fc.bias", f, 0);
        matrix(at + ".mlp.c_proj.weight", h, f, into_residual);
        constant(at + ".mlp.c_proj.bias", h, 0);
    }
    constant("transformer.ln_f.weight", h, 1);
    constant("transformer.ln_f.bias", h, 0);
    if (!c.tied) matrix("lm_head.weight", c.vocab_size, h, c.init_std);
    return all;
}

namespace {

double layer_flops_per_token(const ModelConfig& c) {
    const auto h = static_cast<double>(c.hidden_size);
    const auto s = static_cast<double>(c.seq_length);
    const auto f = static_cast<double>(c.ffn_hidden_size);
    // QKV 6 h^2, attention 2 s h (causal half of 4 s h), output projection 2 h^2, MLP 4 h f.
    return 8 * h * h + 2 * s * h + 4 * h * f;
}

double output_flops_per_token(const ModelConfig& c) {
    return 2.0 * static_cast<double>(c.hidden_size) * static_cast<double>(c.vocab_size);
}

}  // namespace

double forward_flops_per_token(const ModelConfig& config) {
    return config.num_layers * layer_flops_per_token(config) + output_flops_per_token(config);
}

double output_layer_in_layers(const ModelConfig& config) {
    return output_flops_per_token(config) / layer_flops_per_token(config);
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/model_config.hpp"

#include "src/model/families/families.hpp"
#include "vocabpipe/error.hpp"

#include <string>

namespace vocabpipe {

void set_family(ModelConfig& c, std::string_view name) {
    const ModelFamily& family = model_family(name);
    c.family = family.name;
    family.set(c);
}

namespace {

/// Sizes of latent attention: all, or none for a family without it.
void check_latents(const ModelConfig& c) {
    const bool has = model_family(c.family).has_latents();
    const auto check = [&](const char* flag, int64_t value, int64_t least) {
        if (has ? value >= least : value == 0) return;
        throw UsageError(
            std::string(flag) + " " + std::to_string(value) +
            (has ? ": must be at least " + std::to_string(least)
                 : ": --model-type " + c.family + " has no latent attention; remove the flag"));
    };
    check("--kv-lora-rank", c.latent.kv_rank, 1);
    check("--q-lora-rank", c.latent.q_rank, 0);
    check("--qk-head-dim", c.latent.key_size, 1);
    check("--qk-pos-emb-head-dim", c.latent.rope_size, 1);
    check("--v-head-dim", c.latent.value_size, 1);
}

}  // namespace

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
                         ": must be at most 2147483647, because token ids are 32-bit");
    }
    if (kv_channels == 0 && !has_latents() && hidden_size % num_attention_heads != 0) {
        throw UsageError("--num-attention-heads " + std::to_string(num_attention_heads) +
                         ": must divide --hidden-size " + std::to_string(hidden_size) +
                         ", or set --kv-channels");
    }
    at_least("--num-query-groups", num_query_groups, 0);
    at_least("--kv-channels", kv_channels, 0);
    if (num_attention_heads % kv_heads() != 0) {
        throw UsageError("--num-query-groups " + std::to_string(num_query_groups) +
                         ": must divide --num-attention-heads " +
                         std::to_string(num_attention_heads));
    }
    check_experts(*this);
    check_latents(*this);
    if (softmax_type == SoftmaxType::learnable && has_latents()) {
        throw UsageError("--softmax-type learnable: --model-type " + family +
                         " has latent attention, which has no sinks; remove the flag");
    }
    model_family(family).check(*this);
    if (!learned_positions && (rotary_size() % 2 != 0 || rotary_size() > head_size())) {
        throw UsageError("--kv-channels " + std::to_string(head_size()) +
                         ": must be even for rotary positions");
    }
    if (logit_softcap > 0 && label_smoothing > 0) {
        throw UsageError("--label-smoothing " + std::to_string(label_smoothing) +
                         ": cannot be combined with soft-capped logits (" + family +
                         "), whose gradient would need another product; remove it");
    }
    if (learned_positions && max_position_embeddings < seq_length) {
        throw UsageError("--max-position-embeddings " + std::to_string(max_position_embeddings) +
                         ": must be at least --seq-length " + std::to_string(seq_length));
    }
}

void check_positions(const ModelConfig& model, int64_t seq_length) {
    if (!model.learned_positions || seq_length <= model.max_position_embeddings) return;
    throw UsageError("--seq-length " + std::to_string(seq_length) + ": the model has " +
                     std::to_string(model.max_position_embeddings) +
                     " positions; use at most as many");
}

}  // namespace vocabpipe

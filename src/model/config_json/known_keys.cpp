// SPDX-License-Identifier: Apache-2.0
// tests/model/change_models.py tests with transformers what each key does to each family.
#include "src/model/config_json/known_keys.hpp"

#include "src/model/config/fields.hpp"
#include "src/model/families/families.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace vocabpipe {

namespace {

/// Keys that do not describe the model: its author, and how programs handle it.
constexpr auto kOfPrograms = std::to_array<std::string_view>({
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_name_or_path",
    "_source",
    "architectures",
    "attn_implementation",
    "auto_map",
    "cache_implementation",
    "chunk_size_feed_forward",
    "custom_pipelines",
    "dtype",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "num_labels",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_router_logits",
    "problem_type",
    "return_dict",
    "task_specific_params",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
});

/// How text is made, and which tokens have a meaning beside those of text_ends.hpp.
constexpr auto kOfGeneration = std::to_array<std::string_view>({
    "bad_words_ids",
    "begin_suppress_tokens",
    "cls_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "generation_config",
    "length_penalty",
    "mask_token_id",
    "max_length",
    "max_new_tokens",
    "min_length",
    "min_new_tokens",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_scores",
    "pad_token_id",
    "prefix",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "temperature",
    "tokenizer",
    "top_k",
    "top_p",
    "transformers_weights",
    "typical_p",
    "unk_token_id",
    "vocab_file",
});

/// Dropout, which this program lacks (docs/models.md); other losses and heads; how matrices are
/// cut.
constexpr auto kOfOtherTraining = std::to_array<std::string_view>({
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_pdrop",
    "aux_loss_alpha",
    "classifier_bias",
    "classifier_dropout",
    "classifier_pooling",
    "cross_attention_hidden_size",
    "dropout",
    "embd_pdrop",
    "embedding_dropout",
    "ep_size",
    "hidden_dropout",
    "hidden_dropout_prob",
    "max_sequence_length",
    "model_max_length",
    "n_ctx",
    "pretraining_tp",
    "pruned_heads",
    "reorder_and_upcast_attn",
    "resid_pdrop",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "router_z_loss_coef",
    "seq_aux",
    "summary_activation",
    "summary_first_dropout",
    "summary_hidden_size",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "unsloth_fixed",
});

/// Keys of families beside those of model_fields(). transformers ignores them where the family's
/// own class lacks them.
constexpr auto kOfOtherFamilies = std::to_array<std::string_view>({
    "_sliding_window_pattern",
    "clip_qkv",
    "decoder_sparse_step",
    "first_k_dense_replace",
    "max_window_layers",
    "moe_layer_freq",
    "n_routed_experts",
    "n_shared_experts",
    "no_rope_layer_interval",
    "num_local_experts",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "qk_head_dim",
    "qkv_bias",
    "rope_parameters",
    "rotary_emb_base",
    "sliding_window_pattern",
    "topk_method",
    "use_sliding_window",
});

/// Keys of the fields of every family, which transformers ignores likewise.
const std::set<std::string, std::less<>>& keys_of_fields() {
    static const std::set<std::string, std::less<>> kKeys = [] {
        std::set<std::string, std::less<>> keys;
        for (const ModelFamily& family : all_families()) {
            ModelConfig model;
            model.family = family.name;
            for (const ModelField& field : model_fields(model)) {
                if (!field.key.empty()) keys.insert(field.key);
            }
        }
        return keys;
    }();
    return kKeys;
}

bool is_known(std::string_view key) {
    const auto among = [key](const auto& keys) {
        return std::ranges::find(keys, key) != keys.end();
    };
    return among(kOfPrograms) || among(kOfGeneration) || among(kOfOtherTraining) ||
           among(kOfOtherFamilies) || keys_of_fields().contains(key);
}

}  // namespace

void refuse_unknown_keys(const StrictJson& json) {
    for (const std::string& key : json.unread_keys()) {
        if (is_known(key) || json.at(key).is_null()) continue;
        json.at(key).fail(
            "unknown key, which may change what the model computes; remove it if it does not");
    }
}

}  // namespace vocabpipe

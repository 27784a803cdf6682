// SPDX-License-Identifier: Apache-2.0
// Compares the model of a checkpoint with the run's, key by key, and names the flag that makes them
// equal.
#include "src/model/config_json/decoder_keys.hpp"
#include "src/model/config_json/rope_keys.hpp"
#include "src/model/families/families.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "vocabpipe/error.hpp"

#include <filesystem>

namespace vocabpipe {

namespace {

std::string number(double value) {
    return nlohmann::json(value).dump();
}

std::string text(bool value) {
    return value ? "true" : "false";
}

std::string scaling_text(const Rope& rope) {
    nlohmann::ordered_json json;
    print_rope(rope, json);
    return json["rope_scaling"].dump();
}

double windowed_theta(const ModelConfig& c) {
    return c.windowed_rope.value_or(c.rope).theta;
}

std::string windows_text(const ModelConfig& c) {
    std::string layers;
    for (int i = 0; i < c.num_layers; ++i) {
        if (c.window(i) > 0) layers += (layers.empty() ? "" : ", ") + std::to_string(i);
    }
    if (layers.empty()) return "no window";
    return "a window of " + std::to_string(c.sliding_window) + " in layers " + layers;
}

std::string layers_without_rope(const ModelConfig& c) {
    std::string layers;
    for (int i = 0; i < c.num_layers; ++i) {
        if (!c.has_rope(i)) layers += (layers.empty() ? "layers " : ", ") + std::to_string(i);
    }
    return layers.empty() ? "no layer" : layers;
}

/// Compares key by key and refuses the first difference.
class Comparison {
public:
    Comparison(const std::string& path, const ModelConfig& file) : path_(path), file_(file) {}

    void size(const char* key, int64_t theirs, int64_t ours, const char* name) const {
        if (theirs == ours) return;
        refuse(key, std::to_string(theirs), std::to_string(ours),
               give(name, std::to_string(theirs)));
    }
    void real(const char* key, double theirs, double ours, const char* name) const {
        if (theirs == ours) return;
        refuse(key, number(theirs), number(ours),
               name == nullptr ? take_all() : give(name, number(theirs)));
    }
    void flag(const char* key, bool theirs, bool ours) const {
        if (theirs != ours) refuse(key, text(theirs), text(ours), take_all());
    }
    void words(const char* key, const std::string& theirs, const std::string& ours) const {
        if (theirs != ours) refuse(key, theirs, ours, take_all());
    }
    [[noreturn]] void refuse(const std::string& key, const std::string& theirs,
                             const std::string& ours, const std::string& remedy) const {
        throw InputFileError(path_ + ": " + key + " is " + theirs + ", but this run has " + ours +
                             "; " + remedy);
    }
    static std::string give(const char* name, const std::string& value) {
        return "set " + std::string(name) + " " + value;
    }

private:
    /// For keys without a flag.
    [[nodiscard]] std::string take_all() const {
        return give("--model", std::filesystem::path(path_).parent_path().string()) +
               ", which reads the whole model from the file";
    }

    const std::string& path_;
    const ModelConfig& file_;
};

void check_same_experts(const Comparison& compare, const ModelConfig& file,
                        const ModelConfig& run) {
    if (file.moe.experts == 0) return;  // the family says which models have them
    compare.size("the number of experts", file.moe.experts, run.moe.experts, "--num-experts");
    compare.size("num_experts_per_tok", file.moe.top_k, run.moe.top_k, "--moe-router-topk");
    compare.size("the size of experts", file.expert_ffn_hidden_size(), run.expert_ffn_hidden_size(),
                 "--moe-ffn-hidden-size");
    compare.size("the size of shared experts", file.shared_ffn_hidden_size(),
                 run.shared_ffn_hidden_size(), "--moe-shared-expert-intermediate-size");
    compare.flag("norm_topk_prob", file.moe.normalize, run.moe.normalize);
    compare.real("routed_scaling_factor", shortest(file.moe.scaling), shortest(run.moe.scaling),
                 "--moe-router-topk-scaling-factor");
    compare.size("n_group", file.moe.groups, run.moe.groups, "--moe-router-num-groups");
    compare.size("topk_group", file.moe.top_groups, run.moe.top_groups, "--moe-router-group-topk");
    const auto layers = [](const ModelConfig& c) {
        std::string names;
        for (int i = 0; i < c.num_layers; ++i) {
            if (c.moe.in_layer(i)) names += (names.empty() ? "layers " : ", ") + std::to_string(i);
        }
        return names;
    };
    compare.words("what has experts (mlp_only_layers)", layers(file), layers(run));
}

}  // namespace

void check_same_model(const ModelConfig& file, const std::string& path, const ModelConfig& run) {
    const Comparison compare(path, file);
    const ConfigKeys& keys = model_family(file.family).keys;
    if (file.family != run.family) {
        compare.refuse("model_type", file.family, run.family,
                       Comparison::give("--model-type", file.family));
    }
    compare.size(keys.layers, file.num_layers, run.num_layers, "--num-layers");
    compare.size(keys.hidden, file.hidden_size, run.hidden_size, "--hidden-size");
    compare.size(keys.ffn, file.ffn_hidden_size, run.ffn_hidden_size, "--ffn-hidden-size");
    compare.size(keys.heads, file.num_attention_heads, run.num_attention_heads,
                 "--num-attention-heads");
    compare.size("num_key_value_heads", file.kv_heads(), run.kv_heads(), "--num-query-groups");
    compare.size("head_dim", file.head_size(), run.head_size(), "--kv-channels");
    compare.size(keys.positions, file.max_position_embeddings, run.max_position_embeddings,
                 "--max-position-embeddings");
    compare.size("vocab_size", file.vocab_size, run.vocab_size, "--vocab-size");
    if (file.tied != run.tied) {
        compare.refuse(
            "tie_word_embeddings", text(file.tied), text(run.tied),
            std::string(file.tied ? "remove" : "add") + " --untie-embeddings-and-output-weights");
    }
    compare.real(keys.epsilon, shortest(file.norm_epsilon), shortest(run.norm_epsilon),
                 "--norm-epsilon");
    compare.flag("attention_bias", file.qkv_bias, run.qkv_bias);
    compare.flag("attention_bias", file.attention_output_bias, run.attention_output_bias);
    compare.flag("mlp_bias", file.mlp_bias, run.mlp_bias);
    const auto activation = [](const ModelConfig& c) {
        return std::string(c.activation == kernels::Activation::silu   ? "silu"
                           : c.activation == kernels::Activation::gelu ? "gelu"
                                                                       : "GELU's tanh form");
    };
    compare.words(keys.activation, activation(file), activation(run));
    check_same_experts(compare, file, run);
    compare.flag("use_parallel_residual", file.parallel_residual, run.parallel_residual);
    const auto columns = [](const ModelConfig& c) {
        return std::to_string(c.rotary_dimension()) + " columns of a head";
    };
    if (!file.learned_positions) {
        compare.real("rope_theta", file.rope.theta, run.rope.theta, "--rotary-base");
        if (file.rope != run.rope) {
            compare.words("rope_scaling", scaling_text(file.rope), scaling_text(run.rope));
        }
        compare.real("rope_local_base_freq", windowed_theta(file), windowed_theta(run), nullptr);
        compare.words("what rotary positions turn (rotary_pct)", columns(file), columns(run));
        compare.words("what has no rotary positions (no_rope_layers)", layers_without_rope(file),
                      layers_without_rope(run));
    }
    compare.real("attn_logit_softcapping", file.attention_softcap, run.attention_softcap, nullptr);
    compare.real("final_logit_softcapping", file.logit_softcap, run.logit_softcap, nullptr);
    compare.real("the scale of attention (query_pre_attn_scalar)", shortest(file.attention_scale),
                 shortest(run.attention_scale), nullptr);
    if (!file.windowed.empty() && file.windowed == run.windowed) {
        compare.size("sliding_window", file.sliding_window, run.sliding_window, "--sliding-window");
    }
    compare.words("attention (sliding_window, layer_types)", windows_text(file), windows_text(run));
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "src/tool/architecture_flags.hpp"

#include "src/train/check_options.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>

namespace vocabpipe::tool {

namespace {

/// What config.json says, so that no flag may say it besides.
constexpr std::array kSaidByConfig{"--model-type",
                                   "--num-layers",
                                   "--hidden-size",
                                   "--ffn-hidden-size",
                                   "--num-attention-heads",
                                   "--num-query-groups",
                                   "--group-query-attention",
                                   "--kv-channels",
                                   "--sliding-window",
                                   "--max-position-embeddings",
                                   "--vocab-size",
                                   "--swiglu",
                                   "--normalization",
                                   "--position-embedding-type",
                                   "--norm-epsilon",
                                   "--rotary-base",
                                   "--untie-embeddings-and-output-weights"};

/// Megatron describes a model by its parts. Which family has these?
ModelFamily family_of(bool swiglu, const std::string& normalization, const std::string& positions) {
    if (swiglu && normalization == "RMSNorm" && positions == "rope") return ModelFamily::llama;
    if (!swiglu && normalization != "RMSNorm" && positions != "rope") return ModelFamily::gpt2;
    throw UsageError(
        "--swiglu, --normalization RMSNorm, --position-embedding-type rope: give all of them "
        "(llama) or none (gpt2), or say --model-type");
}

/// As Megatron chooses it: 4 h; of gated layers two thirds of it, in whole 64s.
int64_t default_ffn_hidden_size(const ModelConfig& m) {
    return m.gated ? std::max<int64_t>(8 * m.hidden_size / 3 / 64 * 64, 64) : 4 * m.hidden_size;
}

}  // namespace

ArchitectureFlags::ArchitectureFlags(CLI::App& app, ModelConfig& model) : app_(app), model_(model) {
    ModelConfig& m = model;
    app.add_option("--model", config_path_,
                   "Folder with a config.json, or such a file: takes the place of the flags below");
    app.add_option("--model-type", model_type_, "gpt2, llama, qwen2, qwen3 or gemma2");
    app.add_option("--num-layers", m.num_layers, "Transformer layers")->capture_default_str();
    app.add_option("--hidden-size", m.hidden_size, "Hidden size h")->capture_default_str();
    app.add_option("--ffn-hidden-size", m.ffn_hidden_size,
                   "Feed-forward size (default 4 h; with a gate 8 h / 3 in whole 64s)");
    app.add_option("--num-attention-heads", m.num_attention_heads, "Attention heads")
        ->capture_default_str();
    app.add_option("--num-query-groups", m.num_query_groups,
                   "Heads of keys and values (default: as many as of queries)")
        ->check(CLI::PositiveNumber);
    app.add_flag("--group-query-attention", group_query_attention_,
                 "Needs --num-query-groups, which says it by itself");
    app.add_option("--kv-channels", m.kv_channels,
                   "Size of a head (default: hidden size / attention heads)")
        ->check(CLI::PositiveNumber);
    app.add_option("--sliding-window", m.sliding_window,
                   "Tokens that Gemma 2's windowed layers see (default: 4096)")
        ->check(CLI::PositiveNumber);
    app.add_option("--max-position-embeddings", m.max_position_embeddings,
                   "Positions the model is made for (default: the sequence length)");
    app.add_option("--vocab-size", m.vocab_size, "Vocabulary rows V, unpadded")
        ->capture_default_str();
    app.add_flag("--swiglu", swiglu_, "With RMSNorm and rope: the same as --model-type llama");
    app.add_option("--normalization", normalization_, "LayerNorm or RMSNorm")
        ->check(CLI::IsMember({"LayerNorm", "RMSNorm"}));
    app.add_option("--position-embedding-type", positions_, "learned_absolute or rope")
        ->check(CLI::IsMember({"learned_absolute", "rope"}));
    app.add_option("--norm-epsilon", norm_epsilon_, "Of norms (default: the family's)");
    app.add_option("--rotary-base", rotary_base_, "Theta of rotary positions (default: 10000)");
    app.add_flag("--untie-embeddings-and-output-weights", untie_,
                 "Give the output layer a weight of its own");
    app.add_option("--seq-length", m.seq_length, "Tokens per sequence")->capture_default_str();
    app.add_option("--init-method-std", m.init_std, "Standard deviation of initial weights")
        ->capture_default_str();
    app.add_option("--label-smoothing", m.label_smoothing, "Label smoothing in [0, 1)")
        ->capture_default_str();
    app.add_option("--z-loss", m.z_loss, "Weight of the squared log partition function in the loss")
        ->capture_default_str();
}

void ArchitectureFlags::resolve(const std::string& loaded) {
    const auto* said =
        std::ranges::find_if(kSaidByConfig, [&](const char* flag) { return app_.count(flag) > 0; });
    const bool by_flags = said != kSaidByConfig.end();
    if (!config_path_.empty()) {
        if (by_flags) {
            throw UsageError(std::string(*said) + ": --model " + config_path_ +
                             " says it already; leave one of them out");
        }
        take_from(config_path_);
    } else if (!by_flags && !loaded.empty()) {
        take_from(loaded);
    } else {
        complete();
    }
}

void ArchitectureFlags::take_from(const std::string& path) {
    const ModelConfig flags = model_;
    model_ = load_model_config(path);
    model_.seq_length = flags.seq_length;
    model_.label_smoothing = flags.label_smoothing;
    model_.z_loss = flags.z_loss;
    if (app_.count("--init-method-std") > 0) model_.init_std = flags.init_std;
    if (model_.seq_length > model_.max_position_embeddings) {
        throw UsageError("--seq-length " + std::to_string(model_.seq_length) + ": " + path +
                         " has " + std::to_string(model_.max_position_embeddings) +
                         " positions; use at most as many");
    }
}

void ArchitectureFlags::complete() {
    ModelConfig& m = model_;
    check_sizes(m);  // what follows computes with them
    set_family(m, model_type_.empty() ? family_of(swiglu_, normalization_, positions_)
                                      : model_family_from(model_type_));
    refuse_contradictions();
    if (norm_epsilon_) m.norm_epsilon = *norm_epsilon_;
    if (rotary_base_) m.rope.theta = *rotary_base_;
    if (group_query_attention_ && m.num_query_groups == 0) {
        throw UsageError("--group-query-attention: give --num-query-groups, too");
    }
    if (app_.count("--ffn-hidden-size") == 0) m.ffn_hidden_size = default_ffn_hidden_size(m);
    if (app_.count("--max-position-embeddings") == 0) m.max_position_embeddings = m.seq_length;
    m.tied = !untie_;
}

void ArchitectureFlags::refuse_contradictions() const {
    const ModelConfig& m = model_;
    const std::string of_family = "--model-type " + std::string(to_string(m.family));
    const auto refuse = [&](const std::string& flag, const std::string& has) {
        throw UsageError(flag + ": " + of_family + " has " + has + "; leave it out");
    };
    const bool swiglu = m.gated && m.activation == kernels::Activation::silu;
    const bool rms = m.normalization == Normalization::rms_norm;
    if (swiglu_ && !swiglu) refuse("--swiglu", "GELU");
    if (!normalization_.empty() && (normalization_ == "RMSNorm") != rms) {
        refuse("--normalization " + normalization_, rms ? "RMSNorm" : "LayerNorm");
    }
    if (!positions_.empty() && (positions_ == "rope") == m.learned_positions) {
        refuse("--position-embedding-type " + positions_,
               m.learned_positions ? "learned positions" : "rotary positions");
    }
    if (rotary_base_ && m.learned_positions) refuse("--rotary-base", "learned positions");
    if (app_.count("--sliding-window") > 0 && m.windowed.empty()) {
        refuse("--sliding-window", "no layer with a window by flags");
    }
}

}  // namespace vocabpipe::tool

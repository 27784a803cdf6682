// SPDX-License-Identifier: Apache-2.0
#include "src/tool/architecture_flags.hpp"

#include "src/train/checkpoint/model_config_file.hpp"
#include "src/train/options/check_options.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <vector>

namespace vocabpipe::tool {

namespace {

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

void ArchitectureFlags::resolve(const std::string& loaded) {
    // What config.json says no flag may say besides: all rows but the first, --model itself.
    const std::vector<Flag> rows = architecture_flags(model_, given_).flags;
    const auto said = std::find_if(rows.begin() + 1, rows.end(),
                                   [&](const Flag& flag) { return read_.contains(flag.name()); });
    const bool by_flags = said != rows.end();
    if (!given_.config.empty()) {
        if (by_flags) {
            throw UsageError(said->name() + ": --model " + given_.config +
                             " says it already; leave one of them out");
        }
        take_from(given_.config);
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
    if (read_.contains("--init-method-std")) model_.init_std = flags.init_std;
    if (model_.seq_length > model_.max_position_embeddings) {
        throw UsageError("--seq-length " + std::to_string(model_.seq_length) + ": " + path +
                         " has " + std::to_string(model_.max_position_embeddings) +
                         " positions; use at most as many");
    }
}

void ArchitectureFlags::complete() {
    ModelConfig& m = model_;
    check_sizes(m);  // what follows computes with them
    set_family(m, given_.model_type.empty()
                      ? family_of(given_.swiglu, given_.normalization, given_.positions)
                      : model_family_from(given_.model_type));
    refuse_contradictions();
    if (given_.norm_epsilon) m.norm_epsilon = *given_.norm_epsilon;
    if (given_.rotary_base) m.rope.theta = *given_.rotary_base;
    if (given_.group_query_attention && m.num_query_groups == 0) {
        throw UsageError("--group-query-attention: give --num-query-groups, too");
    }
    if (!read_.contains("--ffn-hidden-size")) m.ffn_hidden_size = default_ffn_hidden_size(m);
    if (!read_.contains("--max-position-embeddings")) m.max_position_embeddings = m.seq_length;
    m.tied = !given_.untie;
}

void ArchitectureFlags::refuse_contradictions() const {
    const ModelConfig& m = model_;
    const std::string of_family = "--model-type " + std::string(to_string(m.family));
    const auto refuse = [&](const std::string& flag, const std::string& has) {
        throw UsageError(flag + ": " + of_family + " has " + has + "; leave it out");
    };
    const bool swiglu = m.gated && m.activation == kernels::Activation::silu;
    const bool rms = m.normalization == Normalization::rms_norm;
    if (given_.swiglu && !swiglu) refuse("--swiglu", "GELU");
    if (!given_.normalization.empty() && (given_.normalization == "RMSNorm") != rms) {
        refuse("--normalization " + given_.normalization, rms ? "RMSNorm" : "LayerNorm");
    }
    if (!given_.positions.empty() && (given_.positions == "rope") == m.learned_positions) {
        refuse("--position-embedding-type " + given_.positions,
               m.learned_positions ? "learned positions" : "rotary positions");
    }
    if (given_.rotary_base && m.learned_positions) refuse("--rotary-base", "learned positions");
    if (read_.contains("--sliding-window") && m.windowed.empty()) {
        refuse("--sliding-window", "no layer with a window by flags");
    }
}

}  // namespace vocabpipe::tool

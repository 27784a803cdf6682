// SPDX-License-Identifier: Apache-2.0
#include "src/tool/model/architecture_flags.hpp"

#include "src/model/config_json/model_config_json.hpp"
#include "src/model/config_json/rotary_share.hpp"
#include "src/model/families/families.hpp"
#include "src/model/published/published_models.hpp"
#include "src/support/read_whole_file.hpp"
#include "src/support/strict_json.hpp"
#include "src/tool/model/config_notes.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "src/train/options/check_options.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe::tool {

namespace {

constexpr std::string_view kRmsNorm = "RMSNorm";
constexpr std::string_view kRope = "rope";
constexpr std::string_view kSigmoid = "sigmoid";
constexpr float kDefaultBiasRate = 1e-3F;  // Megatron's

/// Whether a flag may change what --model says: another tokenizer for the same layers, or depths of
/// multi-token prediction besides them.
bool changes_named_model(std::string_view flag) {
    return flag == "--vocab-size" || flag == "--mtp-num-layers";
}

std::string flags_of(const MegatronParts& parts) {
    std::string flags;
    const auto add = [&](bool given, const std::string& flag) {
        if (given) flags += (flags.empty() ? "" : " ") + flag;
    };
    add(parts.swiglu, "--swiglu");
    add(parts.rms_norm, "--normalization " + std::string(kRmsNorm));
    add(parts.rope, "--position-embedding-type " + std::string(kRope));
    add(parts.experts, "--num-experts");
    add(parts.latents, "--multi-latent-attention");
    return flags.empty() ? "none" : flags;
}

/// The family with these parts, by which Megatron describes a model.
std::string_view family_of(const MegatronParts& parts) {
    std::string known;
    for (const ModelFamily& family : all_families()) {
        if (!family.parts) continue;
        if (*family.parts == parts) return family.name;
        known += (known.empty() ? "" : ", ") + flags_of(*family.parts) + " (" +
                 std::string(family.name) + ")";
    }
    throw UsageError(flags_of(parts) + ": no model family has only these parts; use " + known +
                     ", or set --model-type");
}

/// Megatron's default: 4 h; with gates two thirds of that, in multiples of 64.
int64_t default_ffn_hidden_size(const ModelConfig& m) {
    return m.gated ? std::max<int64_t>(8 * m.hidden_size / 3 / 64 * 64, 64) : 4 * m.hidden_size;
}

[[noreturn]] void refuse_layers(const std::string& text, int layers) {
    throw UsageError("--moe-layer-freq " + text.substr(0, 40) + ": must be a number from 1 to " +
                     std::to_string(layers) + ", or a 0 or 1 for each of the " +
                     std::to_string(layers) + " layers, as in 0,1,1");
}

/// In Megatron's notation: N means that the first of every N layers has experts; a list has a
/// number per layer, with or without brackets.
std::vector<bool> layers_with_experts(const std::string& text, int layers) {
    std::vector<bool> sparse;
    if (text.find(',') == std::string::npos && layers > 1) {
        const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
        const int step = digits && text.size() < 6 ? std::stoi(text) : 0;
        if (step < 1 || step > layers) refuse_layers(text, layers);
        for (int layer = 0; layer < layers; ++layer) sparse.push_back(layer % step == 0);
    } else {
        for (const char c : text) {
            if (c == '0' || c == '1')
                sparse.push_back(c == '1');
            else if (c != ',' && c != ' ' && c != '[' && c != ']')
                refuse_layers(text, layers);
        }
        if (std::ssize(sparse) != layers) refuse_layers(text, layers);
    }
    return std::ranges::find(sparse, false) == sparse.end() ? std::vector<bool>() : sparse;
}

/// Number of ids in GPT-2's vocab.json, which has every token.
int64_t entries_of(const std::string& path) {
    return std::ssize(
        StrictJson::parse(read_whole_file(path, "use the vocab.json that the data were made with"),
                          path)
            .members());
}

/// The model of a folder that is loaded later; none if its files are invalid, which loading
/// reports.
std::optional<ModelConfig> readable_model(const std::string& folder) {
    if (folder.empty()) return std::nullopt;
    try {
        return load_model_config(folder);
    } catch (const InputFileError&) {
        return std::nullopt;
    }
}

}  // namespace

void ArchitectureFlags::resolve(const std::string& loaded) {
    // All rows but the first, --model itself.
    const std::vector<Flag> rows = architecture_flags(model_, given_).flags;
    const bool by_flags = std::any_of(rows.begin() + 1, rows.end(), [&](const Flag& flag) {
        return read_.contains(flag.name());
    });
    if (!given_.config.empty()) {
        // Flags must not repeat config.json.
        const auto twice = std::find_if(rows.begin() + 1, rows.end(), [&](const Flag& flag) {
            return !changes_named_model(flag.name()) && read_.contains(flag.name());
        });
        if (twice != rows.end()) {
            throw UsageError(twice->name() + ": --model " + given_.config +
                             " already sets this; remove one of the two");
        }
        const NamedModel model = named_model(given_.config);
        take(parse_model_config(model.text, model.path), model.path);
        set_again([](const ModelField& field) { return changes_named_model(field.flag.names); });
        const auto beyond = [&](int32_t token) { return token >= model_.vocab_size; };
        if (model_.begin_of_text && beyond(*model_.begin_of_text)) model_.begin_of_text.reset();
        std::erase_if(model_.ends_of_text, beyond);
    } else if (!by_flags && !loaded.empty()) {
        take(load_model_config(loaded), model_config_path(loaded));
    } else {
        complete(loaded);
    }
}

void ArchitectureFlags::take(ModelConfig file, const std::string& path) {
    const ModelConfig flags = std::exchange(model_, std::move(file));
    print_config_notes(path);
    model_.seq_length = flags.seq_length;
    set_again([](const ModelField& field) { return field.is_of_run(); });
    set_bias_rate();
    if (model_.learned_positions && model_.seq_length > model_.max_position_embeddings) {
        throw UsageError("--seq-length " + std::to_string(model_.seq_length) + ": " + path +
                         " has " + std::to_string(model_.max_position_embeddings) +
                         " positions; use at most " +
                         std::to_string(model_.max_position_embeddings));
    }
}

void ArchitectureFlags::complete(const std::string& loaded) {
    ModelConfig& m = model_;
    if (!given_.megatron.vocab_file.empty() && !read_.contains("--vocab-size")) {
        m.vocab_size = entries_of(given_.megatron.vocab_file);
    }
    check_sizes(m);  // before sizes are computed with
    set_family(m, given_.model_type.empty()
                      ? family_of({.swiglu = given_.swiglu,
                                   .rms_norm = given_.normalization == kRmsNorm,
                                   .rope = given_.positions == kRope,
                                   .experts = read_.contains("--num-experts"),
                                   .latents = given_.multi_latent_attention})
                      : given_.model_type);
    refuse_contradictions();
    if (!given_.moe_layer_freq.empty()) {
        m.moe.sparse = layers_with_experts(given_.moe_layer_freq, m.num_layers);
    }
    if (given_.moe_pre_softmax) m.moe.normalize = false;
    set_bias_rate();
    set_again([](const ModelField& field) { return field.by_family; });
    if (given_.rotary_percent) set_rotary_percent(*given_.rotary_percent);
    if (given_.group_query_attention && m.num_query_groups == 0) {
        throw UsageError("--group-query-attention: requires --num-query-groups");
    }
    if (!read_.contains("--ffn-hidden-size")) m.ffn_hidden_size = default_ffn_hidden_size(m);
    const bool positions_given = read_.contains("--max-position-embeddings");
    if (!positions_given) m.max_position_embeddings = m.seq_length;
    if (const auto file = readable_model(loaded)) {
        // Rotary positions do not limit sequences: a longer one still fits the loaded model.
        if (!positions_given && !m.learned_positions) {
            m.max_position_embeddings = file->max_position_embeddings;
        }
        m.begin_of_text = file->begin_of_text;
        m.ends_of_text = file->ends_of_text;
        // The adapters of a step, but for what flags say.
        m.lora = file->lora;
        set_again([](const ModelField& field) { return field.member.starts_with("lora."); });
    }
    m.tied = !given_.untie;
}

void ArchitectureFlags::set_again(bool (*chosen)(const ModelField&)) {
    for (const ModelField& field : model_fields(model_)) {
        const auto words = read_.find(field.flag.name());
        if (words != read_.end() && chosen(field)) field.flag.set(words->second);
    }
}

void ArchitectureFlags::set_bias_rate() {
    if (given_.moe_update_bias) {
        model_.moe.bias_rate = given_.moe_bias_rate.value_or(kDefaultBiasRate);
    } else if (given_.moe_bias_rate) {
        throw UsageError(
            "--moe-router-bias-update-rate: needs --moe-router-enable-expert-bias; add it, or "
            "remove the rate");
    }
}

void ArchitectureFlags::set_rotary_percent(double share) {
    ModelConfig& m = model_;
    const int64_t channels = rotary_channels(m.head_size(), share);
    if (channels < 1 || (channels % 2 != 0 && channels == m.head_size())) {
        throw UsageError("--rotary-percent " + shortest_text(share) + ": turns " +
                         std::to_string(channels) + " of the " + std::to_string(m.head_size()) +
                         " columns of a head; it must be at least one, and not all of an odd "
                         "number");
    }
    m.rotary_channels = channels == m.head_size() ? 0 : channels;
}

void ArchitectureFlags::refuse_contradictions() const {
    const ModelConfig& m = model_;
    const std::string of_family = "--model-type " + m.family;
    const auto refuse = [&](const std::string& flag, const std::string& has) {
        throw UsageError(flag + ": " + of_family + " has " + has + "; remove the flag");
    };
    const bool swiglu = m.gated && m.activation == kernels::Activation::silu;
    const bool rms = m.normalization == Normalization::rms_norm;
    if (given_.swiglu && !swiglu) refuse("--swiglu", "GELU");
    if (!given_.normalization.empty() && (given_.normalization == kRmsNorm) != rms) {
        refuse("--normalization " + given_.normalization,
               rms ? std::string(kRmsNorm) : "LayerNorm");
    }
    if (!given_.positions.empty() && (given_.positions == kRope) == m.learned_positions) {
        refuse("--position-embedding-type " + given_.positions,
               m.learned_positions ? "learned positions" : "rotary positions");
    }
    for (const char* const flag : {"--rotary-base", "--rotary-percent"}) {
        if (read_.contains(flag) && m.learned_positions) refuse(flag, "learned positions");
    }
    if (given_.rotary_percent && *given_.rotary_percent != 1 &&
        !model_family(m.family).partial_rotary) {
        refuse("--rotary-percent " + shortest_text(*given_.rotary_percent),
               "rotary positions of whole heads");
    }
    const auto refuse_fields_of = [&](std::string_view part, const std::string& has) {
        for (const ModelField& field : model_fields(model_)) {
            const bool of_part = field.is_architecture() && field.member.starts_with(part);
            if (of_part && read_.contains(field.flag.name())) refuse(field.flag.name(), has);
        }
    };
    if (!model_family(m.family).has_experts()) refuse_fields_of("moe.", "no experts");
    if (!model_family(m.family).has_latents()) {
        refuse_fields_of("latent.", "no latent attention");
        if (given_.multi_latent_attention) {
            refuse("--multi-latent-attention", "no latent attention");
        }
    }
    const bool sigmoid = m.moe.score == kernels::RouterScore::sigmoid;
    if (!given_.moe_score.empty() && (given_.moe_score == kSigmoid) != sigmoid) {
        refuse("--moe-router-score-function " + given_.moe_score,
               sigmoid ? "sigmoid scores" : "softmax scores");
    }
    if (read_.contains("--sliding-window") && m.windowed.empty()) {
        refuse("--sliding-window", "no sliding-window layers");
    }
}

}  // namespace vocabpipe::tool

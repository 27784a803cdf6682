// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/tensor_names.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

class ConfigValues;

/// Keys of config.json for values that every model has.
struct ConfigKeys {
    const char* layers = "num_hidden_layers";
    const char* hidden = "hidden_size";
    const char* ffn = "intermediate_size";
    const char* heads = "num_attention_heads";
    const char* positions = "max_position_embeddings";
    const char* epsilon = "rms_norm_eps";
    const char* activation = "hidden_act";
};

/// transformers' defaults for keys that a config.json may leave out.
struct ConfigDefaults {
    int64_t positions = 0;  ///< 0: the key must be there
    const char* activation = "silu";
    double epsilon = 1e-6;
    int64_t kv_heads = 0;   ///< 0: as many as attention heads
    int64_t head_size = 0;  ///< 0: hidden size / attention heads
    double rope_theta = 10000;
    bool tied = false;
};

/// A key of config.json that is true or false and sets the fields with this key
/// (src/model/config/fields.hpp).
struct ConfigSwitch {
    std::string_view key;
    bool otherwise = false;  ///< transformers' default
};

/// A model in Megatron's flags, which describe it by its parts.
struct MegatronParts {
    bool swiglu = false;    ///< --swiglu
    bool rms_norm = false;  ///< --normalization RMSNorm
    bool rope = false;      ///< --position-embedding-type rope
    bool experts = false;   ///< --num-experts
    bool latents = false;   ///< --multi-latent-attention
    bool operator==(const MegatronParts&) const = default;
};

/// The models of one class of transformers. One file of this folder holds all that this program
/// knows of a family; families share code as functions that they call: rotary_decoder.hpp, and
/// src/model/config_json/ for their config.json.
struct ModelFamily {
    std::string_view name;          ///< model_type of config.json, --model-type
    std::string_view architecture;  ///< "architectures" of config.json: transformers' class
    /// Another model_type that is read in the same way, because keys express all differences.
    std::string_view other_name = {};
    ConfigKeys keys = {};
    ConfigDefaults defaults = {};
    std::vector<ConfigSwitch> switches = {};
    TensorNames tensors;
    /// Suffixes of names of tensors in files that are no weights: masks and rotary frequencies in
    /// old files.
    std::vector<std::string_view> no_weights = {};
    bool partial_rotary = false;  ///< rotary positions may turn a part of every head
    /// Whether its layers have experts.
    [[nodiscard]] bool has_experts() const { return !tensors.router.empty(); }
    /// Whether its attention is latent attention.
    [[nodiscard]] bool has_latents() const { return !tensors.kv_down.empty(); }
    /// The parts that select this family without --model-type.
    std::optional<MegatronParts> parts = {};

    /// Sets the properties common to all models of the family; sizes are set already.
    void (*set)(ModelConfig& config);
    /// Reads the keys that parse_model_config() does not read for every family.
    void (*read)(const ConfigValues& file, ModelConfig& config);
    /// Adds the keys that print_model_config() does not print for every family.
    void (*print)(const ModelConfig& config, nlohmann::ordered_json& json);
    /// Refuses models that files of the family cannot express. UsageError with flag, value and
    /// remedy.
    void (*check)(const ModelConfig& config) = [](const ModelConfig& /*config*/) {};
};

/// All families, in the order in which messages and help name them.
[[nodiscard]] std::span<const ModelFamily> all_families();

/// Throws UsageError for another name, naming --model-type, the known families and the nearest of
/// them.
[[nodiscard]] const ModelFamily& model_family(std::string_view name);
/// Null for another name.
[[nodiscard]] const ModelFamily* find_family(std::string_view name);

/// "gpt2, llama, ..."
[[nodiscard]] std::string known_families();
/// The end of a message about an unknown model_type: "; did you mean llama?", or "; the nearest is
/// mistral, missing is a mixture of experts", or "".
[[nodiscard]] std::string nearest_family(std::string_view name);

/// The rows of the registry, each in the file of its name.
namespace families {
[[nodiscard]] ModelFamily gpt2();
[[nodiscard]] ModelFamily gpt_neox();
[[nodiscard]] ModelFamily llama();
[[nodiscard]] ModelFamily mistral();
[[nodiscard]] ModelFamily qwen2();
[[nodiscard]] ModelFamily qwen3();
[[nodiscard]] ModelFamily mixtral();
[[nodiscard]] ModelFamily qwen3_moe();
[[nodiscard]] ModelFamily olmoe();
[[nodiscard]] ModelFamily qwen2_moe();
[[nodiscard]] ModelFamily dots1();
[[nodiscard]] ModelFamily deepseek_v3();
[[nodiscard]] ModelFamily gemma();
[[nodiscard]] ModelFamily gemma2();
[[nodiscard]] ModelFamily gemma3_text();
[[nodiscard]] ModelFamily olmo2();
[[nodiscard]] ModelFamily phi3();
[[nodiscard]] ModelFamily smollm3();
}  // namespace families

}  // namespace vocabpipe

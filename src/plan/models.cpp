// SPDX-License-Identifier: Apache-2.0
#include "src/plan/named_file.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/transformer_shape.hpp"

#include <limits>

namespace vocabpipe {

namespace {

/// What the Hugging Face model type says that its config.json does not.
struct ModelType {
    std::string_view name;
    bool gpt2_keys = false;  ///< n_layer instead of num_hidden_layers and so on
    bool gated_mlp = true;
    bool qkv_biases = false;
    bool qk_norms = false;
    bool tied = false;  ///< when tie_word_embeddings is missing
    int norms_per_layer = 2;
    int64_t head_size = 0;       ///< when head_dim is missing; 0: hidden size / heads
    int windowed_layers_in = 0;  ///< where a sliding_window is given
};

// Between what single precision holds, as train_gpt reads the same files.
constexpr double kLeastEpsilon = 1e-30, kMostEpsilon = 1e30;

constexpr ModelType kTypes[] = {
    {.name = "gpt2", .gpt2_keys = true, .gated_mlp = false, .qkv_biases = true, .tied = true},
    {.name = "llama"},
    {.name = "mistral", .windowed_layers_in = 1},
    {.name = "qwen2", .qkv_biases = true, .windowed_layers_in = 1},
    {.name = "qwen3", .qk_norms = true, .head_size = 128, .windowed_layers_in = 1},
    {.name = "gemma", .tied = true},
    {.name = "gemma2", .tied = true, .norms_per_layer = 4, .windowed_layers_in = 2},
};

const ModelType& type_of(const NamedFile& file) {
    const std::string name = file.text("model_type");
    std::string known;
    for (const ModelType& type : kTypes) {
        if (type.name == name) return type;
        known += (known.empty() ? "" : ", ") + std::string(type.name);
    }
    file.refuse("model_type", "\"" + name.substr(0, 40) + "\" is not supported; one of " + known);
}

}  // namespace

std::string known_models() {
    return names_of(embedded::models());
}

TransformerShape load_model(const std::string& name_or_path) {
    const NamedFile file("--model", name_or_path, embedded::models());
    const ModelType& type = type_of(file);
    const auto key = [&](const char* usual, const char* gpt2) {
        return type.gpt2_keys ? gpt2 : usual;
    };
    TransformerShape shape;
    shape.name = file.stem();
    const char* layers_key = key("num_hidden_layers", "n_layer");
    const int64_t layers = file.integer(layers_key, 1);
    if (layers > (1 << 16)) file.refuse(layers_key, "more than 65536 layers");
    shape.num_layers = static_cast<int>(layers);
    const char* hidden_key = key("hidden_size", "n_embd");
    const char* heads_key = key("num_attention_heads", "n_head");
    shape.hidden_size = file.integer(hidden_key, 1);
    shape.num_attention_heads = file.integer(heads_key, 1);
    shape.num_key_value_heads = file.integer("num_key_value_heads", 1, shape.num_attention_heads);
    if (shape.num_attention_heads % shape.num_key_value_heads != 0) {
        file.refuse("num_key_value_heads",
                    std::to_string(shape.num_key_value_heads) + " must divide the " +
                        std::to_string(shape.num_attention_heads) + " attention heads");
    }
    if (!file.has("head_dim") && type.head_size == 0 &&
        shape.hidden_size % shape.num_attention_heads != 0) {
        file.refuse(hidden_key, std::to_string(shape.hidden_size) + " must be a multiple of " +
                                    heads_key + " " + std::to_string(shape.num_attention_heads) +
                                    ", or give head_dim");
    }
    shape.head_size = file.integer(
        "head_dim", 1,
        type.head_size > 0 ? type.head_size : shape.hidden_size / shape.num_attention_heads);
    shape.ffn_hidden_size = type.gpt2_keys ? file.integer("n_inner", 1, 4 * shape.hidden_size)
                                           : file.integer("intermediate_size", 1);
    shape.vocab_size = file.integer("vocab_size", 1);
    shape.tied = file.flag("tie_word_embeddings", type.tied);
    file.check_number(key("rms_norm_eps", "layer_norm_epsilon"), kLeastEpsilon, kMostEpsilon);
    shape.gated_mlp = type.gated_mlp;
    shape.layer_norm = type.gpt2_keys;
    shape.norms_per_layer = type.norms_per_layer;
    shape.qk_norms = type.qk_norms;
    shape.linear_biases = type.gpt2_keys;
    shape.qkv_biases = type.qkv_biases || file.flag("attention_bias", false);
    shape.learned_positions = type.gpt2_keys ? file.integer("n_positions", 1) : 0;
    const bool windows = file.flag("use_sliding_window", !type.name.starts_with("qwen"));
    if (type.windowed_layers_in > 0 && windows && file.has("sliding_window")) {
        shape.sliding_window = file.integer("sliding_window", 1);
        shape.windowed_layers_in = type.windowed_layers_in;
    }
    try {
        shape.check();
    } catch (const UsageError& error) {
        throw InputFileError(name_or_path + ": " + error.what());
    }
    return shape;
}

}  // namespace vocabpipe

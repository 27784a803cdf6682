// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/model_config_file.hpp"

#include "src/support/strict_json.hpp"
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/input_file.hpp"
#include "src/train/checkpoint/model_config_keys.hpp"
#include "src/train/checkpoint/rope_config.hpp"
#include "src/train/checkpoint/training_state.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

// No real model comes near these, and no product of widths leaves 63 bits.
constexpr int64_t kMostPositions = int64_t{1} << 31;
constexpr int64_t kWidest = int64_t{1} << 24;
constexpr int64_t kMostHeads = int64_t{1} << 16;
constexpr double kSmallest = 1e-30;  // of what must be positive, also as a float
constexpr double kLargest = 1e30;    // likewise finite

// transformers' defaults for keys that Qwen and Gemma 2 may leave out.
constexpr int64_t kDefaultWindow = 4096;
constexpr int64_t kDefaultFullLayers = 28;
constexpr double kDefaultAttentionSoftcap = 50;
constexpr double kDefaultLogitSoftcap = 30;
constexpr int64_t kDefaultQueryScalar = 256;

constexpr std::string_view kWindowed = "sliding_attention";
constexpr std::string_view kFull = "full_attention";

constexpr ModelConfigKeys kKeys[] = {
    {.family = ModelFamily::gpt2,
     .architecture = "GPT2LMHeadModel",
     .layers = "n_layer",
     .hidden = "n_embd",
     .ffn = "n_inner",
     .heads = "n_head",
     .positions = "n_positions",
     .epsilon = "layer_norm_epsilon",
     .activation = "activation_function",
     .default_activation = "gelu_new",
     .default_epsilon = 1e-5,
     .default_tied = true},
    {.family = ModelFamily::llama,
     .architecture = "LlamaForCausalLM",
     .attention_bias = true,
     .mlp_bias = true},
    {.family = ModelFamily::qwen2,
     .architecture = "Qwen2ForCausalLM",
     .default_kv_heads = 32,
     .use_sliding_window = true},
    {.family = ModelFamily::qwen3,
     .architecture = "Qwen3ForCausalLM",
     .default_kv_heads = 32,
     .default_head_size = 128,
     .attention_bias = true,
     .use_sliding_window = true},
    {.family = ModelFamily::gemma2,
     .architecture = "Gemma2ForCausalLM",
     .activation = "hidden_activation",
     .default_activation = "gelu_pytorch_tanh",
     .default_kv_heads = 4,
     .default_head_size = 256,
     .default_tied = true,
     .attention_bias = true},
};

/// Of a config.json.
class Reader {
public:
    Reader(std::string_view text, const std::string& path)
        : json_(StrictJson::parse(text, path)), keys_(keys_of(json_)) {}

    ModelConfig read() {
        ModelConfig c;
        sizes(c);
        set_family(c, keys_.family);
        refuse_others();
        c.tied = flag("tie_word_embeddings", keys_.default_tied);
        c.norm_epsilon = static_cast<float>(positive(keys_.epsilon, keys_.default_epsilon));
        c.init_std = static_cast<float>(not_negative("initializer_range", c.init_std));
        c.activation = activation();
        if (keys_.attention_bias) {
            c.qkv_bias = c.attention_output_bias = flag("attention_bias", false);
        }
        if (keys_.mlp_bias) c.mlp_bias = flag("mlp_bias", false);
        if (!c.learned_positions) c.rope = read_rope(json_, c.max_position_embeddings);
        if (keys_.family == ModelFamily::gemma2) gemma(c);
        windows(c);
        return c;
    }

private:
    static const ModelConfigKeys& keys_of(const StrictJson& json) {
        const StrictJson type = json.at("model_type");
        const std::string name = type.text();
        std::string known;
        for (const ModelConfigKeys& keys : kKeys) {
            if (to_string(keys.family) == name) return keys;
            known += (known.empty() ? "" : ", ") + std::string(to_string(keys.family));
        }
        type.fail("\"" + name.substr(0, 40) + "\" is not computed by this program; " + known +
                  " are");
    }

    [[nodiscard]] std::optional<StrictJson> given(std::string_view key) const {
        if (!json_.has(key) || json_.at(key).is_null()) return std::nullopt;
        return json_.at(key);
    }
    [[nodiscard]] bool flag(std::string_view key, bool otherwise) const {
        const auto value = given(key);
        return value ? value->boolean() : otherwise;
    }
    [[nodiscard]] double positive(std::string_view key, double otherwise) const {
        const auto value = given(key);
        return value ? value->number(kSmallest, kLargest) : otherwise;
    }
    [[nodiscard]] double not_negative(std::string_view key, double otherwise) const {
        const auto value = given(key);
        return value ? value->number(0, kLargest) : otherwise;
    }
    /// transformers' default where the key is missing; where it is null, `null`.
    [[nodiscard]] int64_t size(std::string_view key, int64_t missing, int64_t null,
                               int64_t most) const {
        if (!json_.has(key)) return missing;
        return json_.at(key).is_null() ? null : json_.at(key).integer(1, most);
    }

    void sizes(ModelConfig& c) const {
        const auto width = [&](const char* key) { return json_.at(key).integer(1, kWidest); };
        const bool gpt2 = keys_.family == ModelFamily::gpt2;
        c.num_layers = static_cast<int>(json_.at(keys_.layers).integer(1, UINT16_MAX));
        c.hidden_size = width(keys_.hidden);
        c.num_attention_heads = json_.at(keys_.heads).integer(1, kMostHeads);
        c.vocab_size = json_.at("vocab_size").integer(1, INT32_MAX);
        const bool old_positions = gpt2 && !given(keys_.positions);
        c.max_position_embeddings =
            json_.at(old_positions ? "n_ctx" : keys_.positions).integer(1, kMostPositions);
        c.seq_length = std::min(c.seq_length, c.max_position_embeddings);
        c.ffn_hidden_size = gpt2 && !given(keys_.ffn) ? 4 * c.hidden_size : width(keys_.ffn);
        if (!gpt2) grouped_heads(c);
        if (c.kv_channels == 0 && c.hidden_size % c.num_attention_heads != 0) {
            json_.at(keys_.heads)
                .fail(std::to_string(c.num_attention_heads) + ": must divide " + keys_.hidden +
                      " " + std::to_string(c.hidden_size));
        }
    }

    /// Sets what differs from as many heads of keys as of queries, hidden size / heads each.
    void grouped_heads(ModelConfig& c) const {
        const int64_t heads = c.num_attention_heads;
        const auto kv_heads =
            size("num_key_value_heads", keys_.default_kv_heads, heads, kMostHeads);
        if (kv_heads > 0 && heads % kv_heads != 0) {
            json_.fail("num_key_value_heads is " + std::to_string(kv_heads) + ": must divide " +
                       keys_.heads + " " + std::to_string(heads));
        }
        c.num_query_groups = kv_heads == heads ? 0 : kv_heads;
        const int64_t channels = size("head_dim", keys_.default_head_size, 0, kMostHeads);
        c.kv_channels = channels * heads == c.hidden_size ? 0 : channels;
        if (c.head_size() % 2 != 0) {
            json_.fail("a head has " + std::to_string(c.head_size()) + " channels (" +
                       (channels > 0 ? "head_dim" : "hidden_size / num_attention_heads") +
                       "); rotary positions need an even number");
        }
    }

    [[nodiscard]] kernels::Activation activation() const {
        const auto value = given(keys_.activation);
        const std::string name = value ? value->text() : keys_.default_activation;
        const bool gated = keys_.family != ModelFamily::gpt2;
        if (name == "gelu_new" || name == "gelu_pytorch_tanh") {
            return kernels::Activation::gelu_tanh;
        }
        if (gated && (name == "silu" || name == "swish")) return kernels::Activation::silu;
        value->fail(
            "\"" + name.substr(0, 40) + "\" is not computed by this program; " +
            (gated ? "silu and gelu_pytorch_tanh are" : "it must be gelu_new, GELU's tanh form"));
    }

    void gemma(ModelConfig& c) const {
        const auto softcap = [&](const char* key, double missing) {
            if (!json_.has(key)) return static_cast<float>(missing);
            return static_cast<float>(positive(key, 0));
        };
        c.attention_softcap = softcap("attn_logit_softcapping", kDefaultAttentionSoftcap);
        c.logit_softcap = softcap("final_logit_softcapping", kDefaultLogitSoftcap);
        const double scalar =
            positive("query_pre_attn_scalar", static_cast<double>(kDefaultQueryScalar));
        const bool usual = scalar == static_cast<double>(c.head_size());
        c.attention_scale = usual ? 0 : static_cast<float>(1 / std::sqrt(scalar));
    }

    /// Whose layers have a window, and which.
    void windows(ModelConfig& c) const {
        c.windowed.clear();
        c.sliding_window = 0;
        const bool gemma = keys_.family == ModelFamily::gemma2;
        if (!gemma && !keys_.use_sliding_window) return;
        const auto layers = static_cast<size_t>(c.num_layers);
        const bool may = gemma || flag("use_sliding_window", false);
        const int64_t window = may ? size("sliding_window", kDefaultWindow, 0, kMostPositions) : 0;
        std::vector<bool> windowed(layers, false);
        if (const auto types = given("layer_types")) {
            const std::vector<StrictJson> entries = types->items(layers);
            if (entries.size() != layers) {
                types->fail("has " + std::to_string(entries.size()) + " entries, " + keys_.layers +
                            " is " + std::to_string(layers));
            }
            for (size_t i = 0; i < layers; ++i) {
                const std::string type = entries[i].text();
                windowed[i] = type == kWindowed;
                if (type == kWindowed && window > 0) continue;
                if (type == kWindowed) {
                    entries[i].fail(std::string(kWindowed) + ", but no sliding_window is given" +
                                    (gemma ? "" : " with use_sliding_window true"));
                }
                if (type != kFull) {
                    entries[i].fail("\"" + type.substr(0, 40) +
                                    "\" is not computed by this program; " +
                                    std::string(kWindowed) + " and " + std::string(kFull) + " are");
                }
            }
        } else if (window > 0) {
            const int64_t full = size("max_window_layers", kDefaultFullLayers, 0, INT32_MAX);
            for (size_t i = 0; i < layers; ++i) {
                windowed[i] = gemma ? i % 2 == 0 : static_cast<int64_t>(i) >= full;
            }
        }
        if (std::none_of(windowed.begin(), windowed.end(), [](bool has) { return has; })) return;
        c.windowed = std::move(windowed);
        c.sliding_window = window;
    }

    /// Keys that change what is computed and have one value that this program computes.
    void refuse_others() const {
        struct Needed {
            const char* key;
            bool value;
        };
        constexpr Needed kNeeded[] = {
            {"scale_attn_weights", true},   {"scale_attn_by_inverse_layer_idx", false},
            {"add_cross_attention", false}, {"use_bidirectional_attention", false},
            {"use_mrope", false},           {"is_causal", true}};
        for (const auto& [key, needed] : kNeeded) {
            if (flag(key, needed) == needed) continue;
            json_.at(key).fail(std::string(needed ? "false" : "true") +
                               " is not computed by this program; it must be " +
                               (needed ? "true" : "false"));
        }
        if (const auto quantized = given("quantization_config")) {
            quantized->fail("quantized weights are not read; load the original");
        }
    }

    StrictJson json_;
    const ModelConfigKeys& keys_;
};

const char* activation_name(const ModelConfig& c) {
    if (c.activation == kernels::Activation::silu) return "silu";
    return c.family == ModelFamily::gpt2 ? "gelu_new" : "gelu_pytorch_tanh";
}

/// null for 0, where transformers has None.
nlohmann::ordered_json number_or_null(float value) {
    if (value == 0) return nullptr;
    return shortest(value);
}

/// The number whose reciprocal root is the scale of scores; transformers has a whole one.
nlohmann::ordered_json query_scalar(const ModelConfig& c) {
    if (c.attention_scale == 0) return c.head_size();
    const double scalar = 1 / (static_cast<double>(c.attention_scale) * c.attention_scale);
    const double whole = std::round(scalar);
    if (static_cast<float>(1 / std::sqrt(whole)) == c.attention_scale) {
        return static_cast<int64_t>(whole);
    }
    return scalar;
}

void print_windows(const ModelConfig& c, const ModelConfigKeys& keys,
                   nlohmann::ordered_json& json) {
    nlohmann::ordered_json types = nlohmann::ordered_json::array();
    int first = c.num_layers;
    for (int i = c.num_layers; i-- > 0;) {
        if (c.window(i) > 0) first = i;
    }
    for (int i = 0; i < c.num_layers; ++i) types.push_back(c.window(i) > 0 ? kWindowed : kFull);
    const bool any = first < c.num_layers;
    if (keys.use_sliding_window) {
        json["use_sliding_window"] = any;
        json["max_window_layers"] = first;
    }
    json["sliding_window"] = nullptr;
    if (any) {
        json["sliding_window"] = c.sliding_window;
    } else if (!keys.use_sliding_window) {
        json["sliding_window"] = kDefaultWindow;  // Gemma2Model computes with it even if unused
    }
    json["layer_types"] = std::move(types);
}

void print_gpt2(const ModelConfig& c, nlohmann::ordered_json& json) {
    if (c.ffn_hidden_size == 4 * c.hidden_size) json["n_inner"] = nullptr;
    json["resid_pdrop"] = 0.0;  // this program has no dropout
    json["embd_pdrop"] = 0.0;
    json["attn_pdrop"] = 0.0;
}

void print_rotary_family(const ModelConfig& c, const ModelConfigKeys& keys,
                         nlohmann::ordered_json& json) {
    json["num_key_value_heads"] = c.kv_heads();
    json["head_dim"] = c.head_size();
    print_rope(c.rope, json);
    if (keys.attention_bias) json["attention_bias"] = c.qkv_bias;
    if (keys.mlp_bias) json["mlp_bias"] = c.mlp_bias;
    json["attention_dropout"] = 0.0;
    const bool gemma = c.family == ModelFamily::gemma2;
    if (gemma) {
        json["query_pre_attn_scalar"] = query_scalar(c);
        json["attn_logit_softcapping"] = number_or_null(c.attention_softcap);
        json["final_logit_softcapping"] = number_or_null(c.logit_softcap);
    }
    if (gemma || keys.use_sliding_window) print_windows(c, keys, json);
    json["pad_token_id"] = nullptr;  // the row of a padding token learns like any other
}

}  // namespace

const ModelConfigKeys& model_config_keys(ModelFamily family) {
    return *std::find_if(std::begin(kKeys), std::end(kKeys),
                         [&](const ModelConfigKeys& keys) { return keys.family == family; });
}

double shortest(float value) {
    char digits[32];
    const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
    double result = value;
    if (error == std::errc()) std::from_chars(digits, end, result);
    return result;
}

ModelConfig parse_model_config(std::string_view text, const std::string& path) {
    return Reader(text, path).read();
}

ModelConfig load_model_config(const std::string& path_or_folder) {
    std::error_code ignored;
    const bool folder = std::filesystem::is_directory(path_or_folder, ignored);
    const std::string path =
        folder ? path_or_folder + "/" + std::string(kConfigFile) : path_or_folder;
    return parse_model_config(InputFile(path).text(), path);
}

std::string print_model_config(const ModelConfig& c) {
    const ModelConfigKeys& keys = model_config_keys(c.family);
    nlohmann::ordered_json json;
    json["architectures"] = {keys.architecture};
    json["model_type"] = to_string(c.family);
    json["vocab_size"] = c.vocab_size;
    json[keys.positions] = c.max_position_embeddings;
    json[keys.hidden] = c.hidden_size;
    json[keys.layers] = c.num_layers;
    json[keys.heads] = c.num_attention_heads;
    json[keys.ffn] = c.ffn_hidden_size;
    json[keys.activation] = activation_name(c);
    json[keys.epsilon] = shortest(c.norm_epsilon);
    json["initializer_range"] = shortest(c.init_std);
    if (c.family == ModelFamily::gpt2) {
        print_gpt2(c, json);
    } else {
        print_rotary_family(c, keys, json);
    }
    json["tie_word_embeddings"] = c.tied;
    json["bos_token_id"] = nullptr;  // the tokenizer's business; the defaults may be no token here
    json["eos_token_id"] = nullptr;
    json["torch_dtype"] = c.dtype == DType::bf16 ? "bfloat16" : "float32";
    return json.dump(2) + "\n";
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/gpt2_config.hpp"

#include "src/schedule/files/strict_json.hpp"
#include "vocabpipe/error.hpp"

#include <charconv>
#include <system_error>

namespace vocabpipe {

namespace {

constexpr int64_t kLargestSize = int64_t{1} << 31;  // no real model comes near

/// GPT2Config's defaults where a key may be left out.
constexpr const char* kDefaultActivation = "gelu_new";
constexpr double kDefaultEpsilon = 1e-5;

bool given(const StrictJson& json, std::string_view key) {
    return json.has(key) && !json.at(key).is_null();
}

void must_be(const StrictJson& json, std::string_view key, bool needed) {
    if (!given(json, key) || json.at(key).boolean() == needed) return;
    json.at(key).fail(std::string(needed ? "false" : "true") +
                      " is not computed by this program; it must be " +
                      (needed ? "true" : "false"));
}

std::string number(double value) {
    return nlohmann::json(value).dump();
}

/// As a user writes it: 1e-05, not 9.999999747378752e-06.
double shortest(float value) {
    char digits[32];
    const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
    double result = value;
    if (error == std::errc()) std::from_chars(digits, end, result);
    return result;
}

}  // namespace

ModelConfig parse_gpt2_config(std::string_view text, const std::string& path) {
    const StrictJson json = StrictJson::parse(text, path);
    const std::string type = json.at("model_type").text();
    if (type != "gpt2") {
        json.at("model_type").fail("is not gpt2; train_gpt loads the GPT-2 family only");
    }
    const auto size = [&](std::string_view key) { return json.at(key).integer(1, kLargestSize); };
    ModelConfig config;
    config.num_layers = static_cast<int>(json.at("n_layer").integer(1, UINT16_MAX));
    config.hidden_size = size("n_embd");
    config.num_attention_heads = size("n_head");
    config.vocab_size = json.at("vocab_size").integer(1, INT32_MAX);
    config.max_position_embeddings = size(given(json, "n_positions") ? "n_positions" : "n_ctx");
    config.ffn_hidden_size = given(json, "n_inner") ? size("n_inner") : 4 * config.hidden_size;
    config.tied = !given(json, "tie_word_embeddings") || json.at("tie_word_embeddings").boolean();
    const double epsilon = given(json, "layer_norm_epsilon")
                               ? json.at("layer_norm_epsilon").number(0)
                               : kDefaultEpsilon;
    config.norm_epsilon = static_cast<float>(epsilon);
    const std::string activation = given(json, "activation_function")
                                       ? json.at("activation_function").text()
                                       : kDefaultActivation;
    if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
        json.at("activation_function")
            .fail("is not computed by this program; it must be gelu_new, GELU's tanh form");
    }
    must_be(json, "scale_attn_weights", true);
    must_be(json, "scale_attn_by_inverse_layer_idx", false);
    must_be(json, "add_cross_attention", false);
    if (given(json, "quantization_config")) {
        json.at("quantization_config").fail("quantized weights are not read; load the original");
    }
    return config;
}

void check_same_model(const ModelConfig& file, const std::string& path, const ModelConfig& run) {
    const auto refuse = [&](const char* key, const std::string& theirs, const std::string& ours,
                            const std::string& remedy) {
        throw InputFileError(path + ": " + key + " is " + theirs + ", this run has " + ours + "; " +
                             remedy);
    };
    const auto same = [&](const char* key, int64_t theirs, int64_t ours, const char* flag) {
        if (theirs == ours) return;
        refuse(key, std::to_string(theirs), std::to_string(ours),
               "give " + std::string(flag) + " " + std::to_string(theirs));
    };
    same("n_layer", file.num_layers, run.num_layers, "--num-layers");
    same("n_embd", file.hidden_size, run.hidden_size, "--hidden-size");
    same("n_inner", file.ffn_hidden_size, run.ffn_hidden_size, "--ffn-hidden-size");
    same("n_head", file.num_attention_heads, run.num_attention_heads, "--num-attention-heads");
    same("n_positions", file.max_position_embeddings, run.max_position_embeddings,
         "--max-position-embeddings");
    same("vocab_size", file.vocab_size, run.vocab_size, "--vocab-size");
    if (file.tied != run.tied) {
        refuse("tie_word_embeddings", file.tied ? "true" : "false", run.tied ? "true" : "false",
               std::string(file.tied ? "leave out" : "give") +
                   " --untie-embeddings-and-output-weights");
    }
    if (file.norm_epsilon != run.norm_epsilon) {
        refuse("layer_norm_epsilon", number(shortest(file.norm_epsilon)),
               number(shortest(run.norm_epsilon)), "no other is computed");
    }
}

std::string print_gpt2_config(const ModelConfig& c) {
    nlohmann::ordered_json json;
    json["architectures"] = {"GPT2LMHeadModel"};
    json["model_type"] = "gpt2";
    json["vocab_size"] = c.vocab_size;
    json["n_positions"] = c.max_position_embeddings;
    json["n_embd"] = c.hidden_size;
    json["n_layer"] = c.num_layers;
    json["n_head"] = c.num_attention_heads;
    if (c.ffn_hidden_size == 4 * c.hidden_size) {
        json["n_inner"] = nullptr;
    } else {
        json["n_inner"] = c.ffn_hidden_size;
    }
    json["activation_function"] = "gelu_new";
    json["layer_norm_epsilon"] = shortest(c.norm_epsilon);
    json["initializer_range"] = shortest(c.init_std);
    json["resid_pdrop"] = 0.0;  // this program has no dropout
    json["embd_pdrop"] = 0.0;
    json["attn_pdrop"] = 0.0;
    json["tie_word_embeddings"] = c.tied;
    json["bos_token_id"] = nullptr;  // the tokenizer's business; GPT-2's own may be no token here
    json["eos_token_id"] = nullptr;
    json["torch_dtype"] = c.dtype == DType::bf16 ? "bfloat16" : "float32";
    return json.dump(2) + "\n";
}

}  // namespace vocabpipe

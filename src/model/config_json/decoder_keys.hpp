// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/config_json/config_values.hpp"
#include "vocabpipe/model_config.hpp"

#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

// Keys of config.json that several families have, in and out. A family calls those that it has.

namespace vocabpipe {

struct NamedActivation {
    std::string_view name;
    kernels::Activation activation;
};
/// GELU's tanh form, and its exact one.
inline constexpr std::array kGeluNames{
    NamedActivation{"gelu_pytorch_tanh", kernels::Activation::gelu_tanh},
    NamedActivation{"gelu_new", kernels::Activation::gelu_tanh},
    NamedActivation{"gelu", kernels::Activation::gelu}};
/// Of a gated MLP.
inline constexpr std::array kGateNames{
    NamedActivation{"silu", kernels::Activation::silu},
    NamedActivation{"swish", kernels::Activation::silu},
    NamedActivation{"gelu_pytorch_tanh", kernels::Activation::gelu_tanh},
    NamedActivation{"gelu_new", kernels::Activation::gelu_tanh},
    NamedActivation{"gelu", kernels::Activation::gelu}};

/// hidden_act, or as the family calls it: one of `names`.
[[nodiscard]] kernels::Activation read_activation(const ConfigValues& file,
                                                  std::span<const NamedActivation> names);

/// Positions, feed-forward size and grouped heads.
void read_decoder_sizes(const ConfigValues& file, ModelConfig& config);
/// These, and rotary positions.
void read_rotary_decoder(const ConfigValues& file, ModelConfig& config);
/// Heads of keys and values, their size, rotary positions; attention_bias and mlp_bias where the
/// family has these keys; and no dropout.
struct BiasKeys {
    bool attention = false;
    bool mlp = false;
};
void print_rotary_decoder(const ModelConfig& config, BiasKeys biases, nlohmann::ordered_json& json);

/// attention_bias: of q, k, v and the projection after attention.
void read_attention_bias(const ConfigValues& file, ModelConfig& config);

/// The row of a padding token learns like any other.
void print_no_padding(nlohmann::ordered_json& json);

/// As a user writes it: 1e-05, not 9.999999747378752e-06.
[[nodiscard]] double shortest(float value);

}  // namespace vocabpipe

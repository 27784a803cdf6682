// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/config_json/config_values.hpp"
#include "vocabpipe/model_config.hpp"

#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

// Reads and prints keys of config.json that several families have. A family calls the functions of
// its keys.

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
/// Names of activations in a gated MLP.
inline constexpr std::array kGateNames{
    NamedActivation{"silu", kernels::Activation::silu},
    NamedActivation{"swish", kernels::Activation::silu},
    NamedActivation{"gelu_pytorch_tanh", kernels::Activation::gelu_tanh},
    NamedActivation{"gelu_new", kernels::Activation::gelu_tanh},
    NamedActivation{"gelu", kernels::Activation::gelu}};

/// Reads hidden_act, or the family's name of this key: one of `names`.
[[nodiscard]] kernels::Activation read_activation(const ConfigValues& file,
                                                  std::span<const NamedActivation> names);

/// Positions, feed-forward size and grouped heads.
void read_decoder_sizes(const ConfigValues& file, ModelConfig& config);
/// read_decoder_sizes(), and rotary positions.
void read_rotary_decoder(const ConfigValues& file, ModelConfig& config);
/// Prints heads of keys and values, their size, rotary positions, the family's switches, and no
/// dropout.
void print_rotary_decoder(const ModelConfig& config, nlohmann::ordered_json& json);

/// ModelFamily::switches; parse_model_config() reads them for every family.
void read_switches(const ConfigValues& file, ModelConfig& config);
void print_switches(const ModelConfig& config, nlohmann::ordered_json& json);

/// Prints that there is no padding token: its embedding row learns like any other.
void print_no_padding(nlohmann::ordered_json& json);

/// The double with the shortest text that reads as `value`: 1e-05, not 9.999999747378752e-06.
[[nodiscard]] double shortest(float value);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/strict_json.hpp"
#include "vocabpipe/rope.hpp"

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

namespace vocabpipe {

inline constexpr double kLeastTheta = 1 + 1e-6;  ///< wavelengths grow with the dimension

/// A rope_type.
struct NamedScaling {
    std::string_view name;
    RopeScaling scaling;
};
inline constexpr std::array kRopeTypes{
    NamedScaling{"default", RopeScaling::none}, NamedScaling{"linear", RopeScaling::linear},
    NamedScaling{"dynamic", RopeScaling::dynamic}, NamedScaling{"llama3", RopeScaling::llama3},
    NamedScaling{"yarn", RopeScaling::yarn}};
/// Phi-3's types, where su and yarn are older names of longrope.
inline constexpr std::array kPhiRopeTypes{
    NamedScaling{"default", RopeScaling::none}, NamedScaling{"longrope", RopeScaling::longrope},
    NamedScaling{"su", RopeScaling::longrope}, NamedScaling{"yarn", RopeScaling::longrope}};

/// Reads rope_type, or `type`, its older name, in rope_scaling or rope_parameters; none if there is
/// neither and no key that needs one. InputFileError for null and for another name.
[[nodiscard]] RopeScaling read_rope_type(const StrictJson& json,
                                         std::span<const NamedScaling> types);

/// Rotary positions of a config.json: rope_theta and rope_scaling, or rope_parameters. `positions`:
/// max_position_embeddings, the default of the trained length; `theta`: the default base; `types`:
/// the family's types. InputFileError for unsupported values.
[[nodiscard]] Rope read_rope(const StrictJson& config, int64_t positions, double theta,
                             std::span<const NamedScaling> types = kRopeTypes);

/// Rotary positions of layers with a window and of all others, as in Gemma 3: rope_theta and
/// rope_scaling belong to the others, rope_local_base_freq to layers with the window, and
/// rope_parameters has an object for each kind. Positions of layers with the window are not
/// stretched.
struct RopesOfLayers {
    Rope full;
    Rope windowed;
};
/// `otherwise`: the default bases.
[[nodiscard]] RopesOfLayers read_ropes_of_layers(const StrictJson& config, int64_t positions,
                                                 const RopesOfLayers& otherwise);

/// Adds rope_theta and rope_scaling.
void print_rope(const Rope& rope, nlohmann::ordered_json& config);

}  // namespace vocabpipe

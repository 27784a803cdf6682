// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/strict_json.hpp"
#include "vocabpipe/rope.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>

namespace vocabpipe {

/// Rotary positions of a config.json: rope_theta and rope_scaling, or rope_parameters. `positions`:
/// max_position_embeddings, the trained length where none is given; `theta`: where the file has
/// none. InputFileError for what is not computed.
[[nodiscard]] Rope read_rope(const StrictJson& config, int64_t positions, double theta);

/// Rotary positions of layers with the window and of all others, which Gemma 3 has: rope_theta and
/// rope_scaling are of the others, rope_local_base_freq is of those with the window, and
/// rope_parameters has an object for each kind. Positions of layers with the window are not
/// stretched.
struct RopesOfLayers {
    Rope full;
    Rope windowed;
};
/// Takes the bases of `otherwise` where the file has none.
[[nodiscard]] RopesOfLayers read_ropes_of_layers(const StrictJson& config, int64_t positions,
                                                 const RopesOfLayers& otherwise);

/// Adds rope_theta and rope_scaling.
void print_rope(const Rope& rope, nlohmann::ordered_json& config);

}  // namespace vocabpipe

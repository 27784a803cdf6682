// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/strict_json.hpp"
#include "vocabpipe/rope.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

namespace vocabpipe {

inline constexpr double kLeastTheta = 1 + 1e-6;  ///< wavelengths grow with the dimension

/// Rotary positions of a config.json: rope_theta and rope_scaling, or rope_parameters. `positions`:
/// max_position_embeddings, the trained length where none is given; `theta`: where the file has
/// none. InputFileError for what is not computed.
[[nodiscard]] Rope read_rope(const StrictJson& config, int64_t positions, double theta);

/// partial_rotary_factor: the share of a head's columns that turn, of rope_parameters or else of
/// the model; nothing where neither has it.
[[nodiscard]] std::optional<StrictJson> rotary_share(const StrictJson& config);

/// Adds rope_theta and rope_scaling.
void print_rope(const Rope& rope, nlohmann::ordered_json& config);

}  // namespace vocabpipe

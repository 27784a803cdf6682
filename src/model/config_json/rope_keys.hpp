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

/// Adds rope_theta and rope_scaling.
void print_rope(const Rope& rope, nlohmann::ordered_json& config);

}  // namespace vocabpipe

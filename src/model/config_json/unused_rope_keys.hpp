// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/strict_json.hpp"

#include <string>
#include <vector>

namespace vocabpipe {

/// A line for each key of rope_scaling or rope_parameters with which nothing is computed, here as
/// in transformers: attn_factor of published yarn models, factor of rope_type default. Whoever set
/// it may believe that it counts. `config`: one that parse_model_config() takes.
[[nodiscard]] std::vector<std::string> unused_rope_keys(const StrictJson& config);

}  // namespace vocabpipe

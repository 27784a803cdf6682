// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/strict_json.hpp"

#include <string>
#include <vector>

namespace vocabpipe {

/// One line for each key of rope_scaling or rope_parameters that has no effect, here and in
/// transformers: attn_factor of published yarn models, factor of rope_type default. A user who set
/// it may believe that it has one. `config`: one that parse_model_config() takes.
[[nodiscard]] std::vector<std::string> unused_rope_keys(const StrictJson& config);

}  // namespace vocabpipe

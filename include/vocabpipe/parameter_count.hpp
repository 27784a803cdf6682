// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

#include <cstdint>

namespace vocabpipe {

/// Parameters of the whole model; a tied weight counts once.
[[nodiscard]] int64_t parameter_count(const ModelConfig& config);
/// Parameters that compute one token: of the experts only k per layer.
[[nodiscard]] int64_t active_parameter_count(const ModelConfig& config);

}  // namespace vocabpipe

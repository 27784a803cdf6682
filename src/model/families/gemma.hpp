// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

namespace vocabpipe {

/// Sets what all Gemmas have: GeGLU, norms that files keep as gamma - 1, embedded tokens times
/// sqrt(h).
void set_any_gemma(ModelConfig& config);

}  // namespace vocabpipe

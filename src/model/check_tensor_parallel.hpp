// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

#include <cstdint>

namespace vocabpipe {

/// Whether `ranks` ranks can share the model's layers, with `tokens` tokens in a microbatch. Throws
/// UsageError that names the flag, what cannot be cut, and the remedy. Rows of the vocabulary and
/// experts are not this function's business. Nothing to say for 1.
void check_tensor_parallel(const ModelConfig& config, int ranks, int64_t tokens);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

#include <cstdint>

namespace vocabpipe {

/// Checks that `ranks` ranks can share the model's layers, with `tokens` tokens in a microbatch.
/// Throws UsageError that names the flag, what cannot be cut, and the remedy. Does not check rows
/// of the vocabulary and experts. 1 always passes.
void check_tensor_parallel(const ModelConfig& config, int ranks, int64_t tokens);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context_exchange.hpp"
#include "vocabpipe/model_config.hpp"

namespace vocabpipe {

/// Checks that `ranks` ranks can share the model's sequences, exchanging `form`, where `tensor`
/// ranks share its heads. Throws UsageError that names the flag, what cannot be cut, and the
/// remedy. 1 always passes.
void check_context_parallel(const ModelConfig& config, int ranks, ContextForm form, int tensor);

}  // namespace vocabpipe

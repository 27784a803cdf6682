// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/mesh.hpp"
#include "vocabpipe/model_config.hpp"

namespace vocabpipe {

/// Whether `ranks` ranks can share the experts of the model's layers. Throws UsageError that names
/// the flag, what cannot be shared, and the remedy. Nothing to say for 1.
void check_expert_parallel(const ModelConfig& config, int ranks);

/// Whether a mesh has room for its expert ranks: they divide its slices, and nest with its tensor
/// ranks. Throws likewise.
void check_expert_ranks(const Mesh& mesh);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/mesh.hpp"
#include "vocabpipe/model_config.hpp"

namespace vocabpipe {

/// Checks that `ranks` ranks can share the experts of the model's layers, of which `expert_tensor`
/// share each expert. Throws UsageError that names the flag, what cannot be shared, and the remedy.
/// 1 and 1 always pass.
void check_expert_parallel(const ModelConfig& config, int ranks, int expert_tensor = 1);

/// Checks that the expert ranks fit the mesh: they divide its slices, and nest with its tensor
/// ranks. Of these ranks `expert_tensor` share each expert. Throws likewise.
void check_expert_ranks(const Mesh& mesh, int expert_tensor = 1);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"
#include "vocabpipe/model_rank.hpp"

namespace vocabpipe {

/// Checks ModelPartition::shorter_lengths: whether the ranks can share microbatches of every
/// length, and the model's positions do not depend on it. Throws UsageError that names the length,
/// what is wrong, and the remedy. No lengths always pass.
void check_lengths(const ModelConfig& config, const ModelPartition& partition);

}  // namespace vocabpipe

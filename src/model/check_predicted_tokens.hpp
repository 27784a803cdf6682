// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"
#include "vocabpipe/model_rank.hpp"

namespace vocabpipe {

/// Throws UsageError, with the remedy, for a model or a partition that goes with no depths of
/// multi-token prediction (ModelConfig::mtp_num_layers). No depths always pass.
void check_predicted_tokens(const ModelConfig& config, const ModelPartition& partition);

}  // namespace vocabpipe

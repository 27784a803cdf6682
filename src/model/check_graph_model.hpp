// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"
#include "vocabpipe/model_rank.hpp"

namespace vocabpipe {

/// Throws UsageError for what a ModelConfig::model_forward cannot be combined with.
void check_graph_model(const ModelConfig& config, const ModelPartition& partition);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

#include <string>
#include <vector>

namespace vocabpipe {

/// The linear layers that have adapters, by their names in files, in the order of the model.
[[nodiscard]] std::vector<std::string> adapted_modules(const ModelConfig& config);

/// UsageError for adapters that the model cannot have: without a rank, of a layer that is not
/// there, or of experts, routers, embeddings and the output layer, which have none.
void check_adapters(const ModelConfig& config);

/// A line for the log: rank and alpha, numbers of layers, trained and frozen elements. Empty
/// without adapters.
[[nodiscard]] std::string describe_adapters(const ModelConfig& config);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/data/data_options.hpp"

#include <string>

namespace vocabpipe {

/// PREFIX.model, which `data prepare` writes next to the tokens; "" if the training data have none
/// or are a blend of several sets.
[[nodiscard]] std::string tokenizer_beside(const DataOptions& data);

}  // namespace vocabpipe

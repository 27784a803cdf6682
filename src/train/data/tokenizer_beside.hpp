// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/tokenizer_files.hpp"
#include "src/train/data/data_options.hpp"

#include <string>

namespace vocabpipe {

/// The tokenizer's files that `data prepare` wrote next to the tokens; none if the training data
/// have none or are a blend of several sets.
[[nodiscard]] TokenizerFiles tokenizer_beside(const DataOptions& data);

/// "PREFIX" of PREFIX, PREFIX.bin or PREFIX.idx: what a tokenizer beside data is named after.
[[nodiscard]] std::string prefix_of_data(const std::string& path);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_config.hpp"

namespace vocabpipe {

/// Refuses fewer heads of keys and values than of queries, and heads that are not hidden size /
/// heads wide: files of the family have no key for them. UsageError.
void check_plain_heads(const ModelConfig& config);

}  // namespace vocabpipe

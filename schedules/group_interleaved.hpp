// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

/// Group-interleaved 1F1B: interleaved with split backwards, groups of g = `group_size` <= p
/// (default p) microbatches. p+(v-1)g-r chunks in flight on rank r for g >= p/2. Throws UsageError
/// for g > p.
[[nodiscard]] Schedule group_interleaved(const GenerateOptions& options);

}  // namespace vocabpipe

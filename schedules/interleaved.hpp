// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

/// Interleaved 1F1B: v stages per rank in a loop, microbatches in groups of N (`group_size`,
/// default p). (v-1)N+2(p-1-r)+1 chunks in flight on rank r, 1/v of the bubble of 1F1B.
[[nodiscard]] Schedule interleaved(const GenerateOptions& options);

}  // namespace vocabpipe

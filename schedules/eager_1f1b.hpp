// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

/// 1F1B with warm-up depth D (`warm_up_depth`, default 2): 1+D(p-1-r) microbatches in flight on
/// rank r. Hides boundary latency up to (D-1)(F+B)/2 that plain 1F1B pays on every round trip.
[[nodiscard]] Schedule eager_1f1b(const GenerateOptions& options);

}  // namespace vocabpipe

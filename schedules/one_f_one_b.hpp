// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

/// One forward, one backward: at most p-r microbatches in flight on rank r, plus one per barrier;
/// with interlaced vocabulary layers floor(3p/2)-r. A `warm_up_depth` above 1 gives eager_1f1b.
[[nodiscard]] Schedule one_f_one_b(const GenerateOptions& options);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

/// 1F1B with an unsplit backward on the V placement (schedules reference, 5.13): a repeated pattern
/// whose passes then come forward as far as inputs and the peak allow. 2 floor(2p/3) + 2 chunks on
/// every rank, against 2p of 1F1B on rank 0; makespan about 6m + 5p (F = I = W = 1), at least one
/// slot of bubble more than 5p - 10 and at most 5p - 5. Independent of the costs; any p and m.
[[nodiscard]] Schedule v_one_f_one_b(const GenerateOptions& options);

}  // namespace vocabpipe

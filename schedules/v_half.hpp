// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

// Two fixed patterns on the V placement (schedules reference, 5.11; zero-bubble V paper), made for
// F = I = W and independent of the costs: equal memory on every rank, within one chunk. Any p and
// m. A microbatch every 6 slots; W where the pattern is free; then passes of the warm-up and of the
// cool-down come forward as far as their inputs and the peak allow. At unit costs the makespan is
// the formula for m >= 2p.

/// About half the activations of 1F1B: 2 floor(p/2) + 2 chunks, makespan
/// 6m + 6 floor((p+1)/2) - 7 (p >= 3; 6m + 1 at p = 2).
[[nodiscard]] Schedule v_half(const GenerateOptions& options);

/// About a third of them: 2 ceil((p-1)/3) + 2 chunks, makespan 6m + 4p - 5 (6m + 4p - 7 where 3
/// divides p). F, I and W that differ, and latency, cost idle time for every microbatch.
[[nodiscard]] Schedule v_min(const GenerateOptions& options);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

// Two fixed patterns on the V placement (schedules reference, 5.11; zero-bubble V paper).
// Rule: one microbatch every six slots, W where the pattern is free; then passes of the warm-up and
// of the cool-down move to earlier slots as far as inputs and the peak allow. The slots assume
// F = I = W: the lists do not depend on the costs. Any p and m; bubbles at unit costs, m >= 2p.

/// Equal memory on every rank, within one chunk: 2 floor(p/2) + 2 chunks, about half of 1F1B's 2p.
/// Bubble: 6 floor((p+1)/2) - 7 slots; 1 at p = 2.
[[nodiscard]] Schedule v_half(const GenerateOptions& options);

/// Equal memory on every rank, within one chunk: 2 ceil((p-1)/3) + 2 chunks, about a third of 2p.
/// Bubble: 4p - 5 slots; 4p - 7 where 3 divides p. Latency costs idle time for every microbatch.
[[nodiscard]] Schedule v_min(const GenerateOptions& options);

}  // namespace vocabpipe

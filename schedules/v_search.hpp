// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/generate.hpp"

namespace vocabpipe {

/// The best of all repeated patterns on the V placement that keep at most memory_limit chunks alive
/// on any rank, for the given costs (schedules reference, 5.12), refined for them (4.4).
///
/// Source: the pattern search of the zero-bubble V paper, "v_auto" in sail-sg's repository.
/// Rule: rank 0 runs F and I of its two chunks at some four places of an interval of six slots;
/// from rank to rank the places move by a constant step, which may change once; W takes the free
/// places. Warm-up and cool-down are laid out anew, holes filled, and the list timed with the
/// costs; what counts is makespan + largest span. Above 32 ranks the place of the change is tried
/// for 30 ranks only. Where passes do not all last the same or messages take time, the best four
/// lists are then refined by moving single passes. Bubble: largest span - 6m = 3p-1-3k + max(3p,
/// p-1 + 2(1 + floor((k+1)/2))) slots at limit k for F = I = W = 1, m >= 2p (tested for p = 2..8);
/// makespan at most p-1 more. Memory: k chunks, from 2 ceil((p-1)/3) + 2 (fewer for m < 2p) to 2p,
/// which is the default: more brings nothing. Throws UsageError with the least possible k below
/// that. Any p and m. Time: some 0.1 s at p = 8, 0.3 s at p = 16, 3 s at p = 32 on one core,
/// whatever m. The same options give the same list.
[[nodiscard]] Schedule v_search(const GenerateOptions& options);

}  // namespace vocabpipe

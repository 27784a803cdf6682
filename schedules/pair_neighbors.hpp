// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/schedule.hpp"

namespace vocabpipe {

/// RuleOptions::overlap_pairs: a backward (B or I) and the forward behind it, of two microbatches,
/// become an overlapped pair (Pass::with_next). Pairs of the family's rule stay, and so does the
/// order of all passes.
void pair_neighbors(Schedule& schedule);

}  // namespace vocabpipe

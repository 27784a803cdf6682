// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/options/train_options.hpp"
#include "vocabpipe/overlap_table.hpp"
#include "vocabpipe/world.hpp"

#include <vector>

namespace vocabpipe {

/// The products of a model's layers on a team of `members`: of column-parallel linears forwards and
/// of row-parallel ones backwards behind an all-gather, the others before a reduce-scatter, and the
/// output layer's behind a broadcast. Sizes that the team cannot share evenly are those of the
/// member that has most. Of experts that the team can share, the largest product that rows are
/// dispatched to and the largest whose rows are combined. No two are alike; nothing is measured
/// yet.
[[nodiscard]] std::vector<MeasuredOverlap> overlap_shapes(const TrainOptions& options, int members);

/// Measures them on the machine under the ranks, all of them one team, over the world's own
/// transport, with 1, 2, 4, 8 and 16 pieces: products of one thread per rank in fp32, `train_iters`
/// rounds. Give every rank a core. Collective; the same on every rank. Ends with AgreedError on all
/// ranks for flags that cannot work, and where a product by pieces had other bits than the whole.
[[nodiscard]] OverlapTable profile_overlap(Communicator& communicator, const TrainOptions& options);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/options/train_options.hpp"
#include "vocabpipe/overlap_table.hpp"
#include "vocabpipe/world.hpp"

#include <vector>

namespace vocabpipe {

/// The products of a model's layers on a team of `members`: column-parallel linears forwards and
/// row-parallel ones backwards after an all-gather, the others before a reduce-scatter, and the
/// output layer's after a broadcast. If the team cannot share a size evenly, it is the largest
/// member's. With experts that the team can share, also the largest product whose rows are
/// dispatched and the largest whose rows are combined. No two are alike; nothing is measured yet.
[[nodiscard]] std::vector<MeasuredOverlap> overlap_shapes(const TrainOptions& options, int members);

/// Measures them on the machine under the ranks, all in one team, over the world's own transport,
/// with 1, 2, 4, 8 and 16 pieces: products of one thread per rank in fp32, `train_iters` rounds.
/// Give every rank a core. Collective; the same on every rank. AgreedError on all ranks for flags
/// that cannot work, or if a product by pieces has other bits than the whole.
[[nodiscard]] OverlapTable profile_overlap(Communicator& communicator, const TrainOptions& options);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/options/train_options.hpp"

namespace vocabpipe {

/// The options of a run on so many ranks. Where TrainOptions::schedule_by_stages asks for it, ranks
/// with several stages have the interleaved schedule: Megatron's flags for virtual stages mean it
/// by themselves, and how many stages a rank has follows from the number of ranks.
[[nodiscard]] TrainOptions with_chosen_schedule(TrainOptions options, int ranks);

}  // namespace vocabpipe

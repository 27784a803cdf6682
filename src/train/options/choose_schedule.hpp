// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/options/train_options.hpp"

namespace vocabpipe {

/// The options of a run on `ranks` ranks. If TrainOptions::schedule_by_stages is set and ranks have
/// several stages, the schedule is interleaved: Megatron's flags for virtual stages imply it, and
/// the number of stages per rank follows from the number of ranks.
[[nodiscard]] TrainOptions with_chosen_schedule(TrainOptions options, int ranks);

}  // namespace vocabpipe

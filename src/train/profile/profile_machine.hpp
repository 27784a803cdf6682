// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/options/train_options.hpp"
#include "vocabpipe/profile.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>

namespace vocabpipe {

/// Called on every rank with the current measurement and its progress.
using MeasureProgress = std::function<void(const char* phase, int64_t done, int64_t total)>;

/// Measures passes and links of the machine under the ranks for the model and the split in
/// `options` (data, learning rate and output files do not matter): `options.train_iters` steps on
/// random tokens with whole backwards, as many with backwards split into I and W, then messages and
/// collectives of several sizes between idle ranks. Durations, not CPU time: give every rank a
/// core. Collective; the same on every rank. AgreedError on all ranks for flags that cannot work.
[[nodiscard]] Profile profile_machine(Communicator& communicator, const TrainOptions& options,
                                      const MeasureProgress& progress = {});

}  // namespace vocabpipe

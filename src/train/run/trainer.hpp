// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/options/train_options.hpp"
#include "vocabpipe/world.hpp"

namespace vocabpipe {

/// Trains a GPT on the ranks of `communicator`: plans, checks that the plan fits, runs, reports.
/// Every rank of the world calls it with equal options. AgreedError for mistakes found before the
/// first step, CommunicationError for a lost or stuck peer.
void train(Communicator& communicator, const TrainOptions& options);

}  // namespace vocabpipe

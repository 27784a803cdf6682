// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/options/train_options.hpp"
#include "vocabpipe/world.hpp"

namespace vocabpipe {

/// Trains a GPT on the ranks of `communicator`: plans, checks that the plan fits, runs, reports.
/// Every rank of the world calls it with equal options. Throws AgreedError for what is wrong before
/// the first step, CommunicationError for a peer that is lost or stuck.
void train(Communicator& communicator, const TrainOptions& options);

}  // namespace vocabpipe

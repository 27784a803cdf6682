// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/profile.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

struct MeasureLinksOptions {
    std::vector<int64_t> bytes;  ///< message sizes, each >= 1
    bool collectives = false;  ///< broadcast, all_gather, all_to_all and gather over all ranks, too
    int repetitions = 15;      ///< the median counts; enough to leave out a descheduled core
};

struct LinkTimes {
    std::vector<LinkSample> median;   ///< over all repetitions: the machine as it is
    std::vector<LinkSample> fastest;  ///< of all repetitions: without waits for a core
};

/// Times transfers between ranks that do nothing else: messages from every rank to the next, one
/// pair at a time, and collectives over all. Empty for one rank. Collective, outside of steps; the
/// same result on every rank.
/// `transport` moves the memory of `device`.
[[nodiscard]] LinkTimes measure_links(Communicator& communicator, Device& device,
                                      Transport& transport, const MeasureLinksOptions& options);

/// Fits latency and rate of `costs` to the messages among the samples: the latency is that of the
/// shortest message, the rate gives the right time for the one of (or nearest to) `bytes`, the size
/// of a boundary tensor, which a program sends most. Without messages both stay unchanged.
void fit_links(const std::vector<LinkSample>& samples, int64_t bytes, TableCosts& costs);

}  // namespace vocabpipe

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
    std::vector<LinkSample> median;   ///< of all repetitions: the machine as it is
    std::vector<LinkSample> fastest;  ///< the same without waits for a core
};

/// Times transfers between ranks that do nothing else: messages from every rank to the next, one
/// pair at a time, and collectives over all. Empty for one rank. Collective, outside of steps; the
/// same result on every rank.
/// `transport` moves the memory of `device`.
[[nodiscard]] LinkTimes measure_links(Communicator& communicator, Device& device,
                                      Transport& transport, const MeasureLinksOptions& options);

/// Latency and rate of `costs` from the messages among the samples: the latency is that of the
/// shortest, the rate makes the one of (or next to) `bytes` come out right. What a program sends
/// most is its boundary tensor. Without messages both stay as they are.
void fit_links(const std::vector<LinkSample>& samples, int64_t bytes, TableCosts& costs);

}  // namespace vocabpipe

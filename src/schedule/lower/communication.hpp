// SPDX-License-Identifier: Apache-2.0
// Adds the communication of a step to its graph: for each kind the nodes that it consists of.
#pragma once

#include "src/schedule/lower/step_graph.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe::lowering {

/// The group of the ranks and the root, ascending.
[[nodiscard]] Group with_root(std::vector<int> ranks, int root);

/// A buffer that a pass of a rank makes or uses.
struct Endpoint {
    int rank = 0;
    uint32_t buffer = kNoBuffer;
    uint32_t node = kNoNode;  ///< the pass
};

/// Sends the buffer that `from` makes to the buffer that `to` uses on another rank.
void add_message(StepGraph& step, const Endpoint& from, const Endpoint& to, Lane lane,
                 uint32_t microbatch);

/// A boundary on several ranks.
struct Copies {
    std::vector<uint32_t> buffers;  ///< [owner]
    uint32_t arrived = kNoNode;     ///< the node after which each owner has it
};
/// Sends the `bytes` of `from` to every other rank of `owners`; `streamed`: beginning with its
/// first rows.
[[nodiscard]] Copies add_broadcast(StepGraph& step, const Endpoint& from,
                                   const std::vector<int>& owners, int64_t bytes,
                                   uint32_t microbatch, Purpose purpose, bool streamed = false);

/// Gathers the parts of all tensor ranks, of `bytes` each, on each of them, complete after the
/// returned node; without tensor ranks it returns `own`.
[[nodiscard]] Endpoint gather_rows(StepGraph& step, const Endpoint& own, int64_t bytes,
                                   uint32_t microbatch, Purpose purpose);

/// A sum of partial rows, one from every owner.
struct Sum {
    uint16_t reduction = 0;  ///< kOutputReduction or kInputReduction; says which types
    const std::vector<int>& owners;
    std::vector<uint32_t> partials;   ///< [owner]
    std::vector<uint32_t> producers;  ///< [owner] the node after which its partial is complete
    bool streamed = false;            ///< rows leave during that node already; with several owners
    int root = 0;                     ///< rank that gets the sum
    uint32_t into = kNoBuffer;        ///< buffer of the root
    uint32_t microbatch = 0;
};
/// Returns the node after which the sum is complete. With Reductions::ordered it is an all-to-all
/// of row blocks, an ordered sum on every owner and a gather; with native one reduce, if the root
/// is an owner.
[[nodiscard]] uint32_t add_sum(StepGraph& step, const Sum& sum);

}  // namespace vocabpipe::lowering

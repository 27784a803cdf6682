// SPDX-License-Identifier: Apache-2.0
// The communication of a step, each as the nodes that it takes.
#pragma once

#include "src/schedule/lower/step_graph.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe::lowering {

/// The ranks, the root among them, ascending.
[[nodiscard]] Group with_root(std::vector<int> ranks, int root);

/// A buffer that a pass of a rank makes or uses.
struct Endpoint {
    int rank = 0;
    uint32_t buffer = kNoBuffer;
    uint32_t node = kNoNode;  ///< of the pass
};

/// Moves what `from` makes to where `to` uses it, on another rank.
void add_message(StepGraph& step, const Endpoint& from, const Endpoint& to, Lane lane,
                 uint32_t microbatch);

/// A boundary on several ranks.
struct Copies {
    std::vector<uint32_t> buffers;  ///< [owner]
    uint32_t arrived = kNoNode;     ///< the node after which each owner has it
};
/// `from` to every other rank of `owners`; `streamed`: from its first rows on.
[[nodiscard]] Copies add_broadcast(StepGraph& step, const Endpoint& from,
                                   const std::vector<int>& owners, uint32_t microbatch,
                                   Purpose purpose, bool streamed = false);

/// The rows of all tensor ranks of what each of them has, after Endpoint::node: itself where there
/// are none.
[[nodiscard]] Endpoint gather_rows(StepGraph& step, const Endpoint& own, uint32_t microbatch,
                                   Purpose purpose);

/// A sum of partial rows, one from every owner.
struct Sum {
    uint16_t reduction = 0;  ///< which rows and types
    const std::vector<int>& owners;
    std::vector<uint32_t> partials;   ///< [owner]
    std::vector<uint32_t> producers;  ///< [owner] the node after which its partial is there
    bool streamed = false;            ///< or within which; with several owners
    int root = 0;                     ///< who gets it
    uint32_t into = kNoBuffer;        ///< of the root
    uint32_t microbatch = 0;
};
/// Returns the node after which the sum is complete. `ordered`: as an all-to-all of row blocks, an
/// ordered sum on every owner and a gather; `native`: as one reduce, where the root is an owner.
[[nodiscard]] uint32_t add_sum(StepGraph& step, const Sum& sum);

}  // namespace vocabpipe::lowering

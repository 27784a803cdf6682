// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/disk/state_blocks.hpp"
#include "src/select/files/graph_file.hpp"
#include "src/select/memory_budget.hpp"
#include "src/select/ownership.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace vocabpipe {

/// F(S) = alpha * sum of utilities in S - beta * sum of similarities of edges inside S.
struct PairwiseObjective {
    int64_t alpha = 9;  ///< 9 and 1 stand for the paper's 0.9 and 0.1
    int64_t beta = 1;
};

/// Largest alpha and beta: products with 2^31 stay far below 64 bits.
inline constexpr int64_t kMostObjectiveWeight = int64_t{1} << 20;

/// Messages that this rank has sent.
struct MessageCount {
    int64_t messages = 0;  ///< to owners, including this rank
    int64_t sent = 0;      ///< to other ranks
    int64_t bytes = 0;     ///< of `sent`
};

/// What all phases of a selection share on one rank.
struct SelectContext {
    Communicator& world;
    const GraphFile& graph;
    /// Who reads which rows; where ranks see different parts of the graph, owners_of_parts().
    Ownership owners{graph.nodes(), world.size()};
    PairwiseObjective objective;
    uint64_t seed = 0;
    MemoryBudget memory{};
    uint64_t batch_bytes = uint64_t{1} << 20;  ///< of messages that a rank sends at once
    StateBlocks blocks{};                      ///< how states are held
    /// Called with the current phase and its progress; total 0: unknown. May be empty.
    std::function<void(const char* phase, int64_t done, int64_t total)> progress = {};
    MessageCount messages = {};

    [[nodiscard]] int64_t first() const { return owners.begin(world.rank()); }
    [[nodiscard]] int64_t last() const { return owners.end(world.rank()); }
    void report(const char* phase, int64_t done, int64_t total) const {
        if (progress) progress(phase, done, total);
    }
    /// Communicator::agree() with a remedy if memory is missing.
    void agree(const std::function<void()>& work) const;
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/greedy.hpp"
#include "src/select/select_context.hpp"
#include "src/select/selection_state.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace vocabpipe {

/// Options of algorithm 6: number of parts (partitions) and of rounds.
struct RoundOptions {
    int64_t parts = 1;
    int64_t rounds = 1;
    bool adaptive = false;  ///< later rounds have fewer parts, none larger than in the first
    uint64_t edge_bytes = UINT64_MAX;  ///< limit for the edges within a part
};

/// Numbers of one round.
struct RoundReport {
    int64_t round = 1;
    int64_t input = 0;   ///< open samples before it
    int64_t target = 0;  ///< samples to keep
    int64_t parts = 0;
    int64_t quota = 0;  ///< of each part
    int64_t kept = 0;
    int64_t objective = 0;  ///< of the chosen or kept samples; set by the caller

    bool operator==(const RoundReport&) const = default;
};

/// The plan of a round that begins with `input` of the `begun` open samples, of which `count` are
/// to be chosen.
[[nodiscard]] RoundReport plan_round(const RoundOptions& options, int64_t round, int64_t begun,
                                     int64_t input, int64_t count);

/// Runs greedy in all parts of the open samples, each part on one rank. What the parts choose stays
/// open, the rest is discarded. Every rank reads its own rows only, and sends what lies within a
/// part to the rank that works on it: once for as many parts as may wait. Collective.
class GreedyRounds {
public:
    /// Replaces the random parts of round 1: for worst cases in tests.
    using PartOf = std::function<int64_t(int64_t node)>;
    /// Called for every part that this rank has worked on: for tests.
    using Observe = std::function<void(int64_t round, int64_t part, std::span<const PartNode> nodes,
                                       std::span<const int64_t> chosen)>;

    GreedyRounds(SelectContext& context, SelectionState& state, uint64_t edge_bytes);

    void observe(Observe observe) { observe_ = std::move(observe); }
    /// Called when some parts of a round are done: all before `parts_done`, whose samples are
    /// marked.
    using AfterParts = std::function<void(int64_t parts_done)>;
    /// Runs a round of plan_round() and sets `kept`. `parts_done`: goes on in a round that was
    /// ended, on any number of ranks.
    void run(RoundReport& round, int64_t parts_done = 0, const AfterParts& after_parts = {},
             const PartOf& first_parts = {});

    /// Parts of a rank that wait at most while it works on one.
    static constexpr int64_t kMostWaiting = 64;
    /// How many of `parts` on `ranks` wait on a rank.
    [[nodiscard]] static int64_t waiting(int64_t parts, int ranks);
    /// Memory of a rank for them.
    [[nodiscard]] static uint64_t waiting_bytes(int64_t parts, int ranks);

private:
    /// Parts [first, last) of a round, which wait together: each rank works on every ranks-th.
    struct Waiting {
        const RoundReport& round;
        const PartOf& part_of;
        std::function<bool(int64_t part, int64_t node)> has;  ///< part_of(node) == part
        int64_t most_nodes = 0;                               ///< of a part; 0: not known
        int64_t first = 0, last = 0;
    };
    [[nodiscard]] int64_t turns(const Waiting& parts) const;
    [[nodiscard]] int64_t part_at(const Waiting& parts, int64_t turn) const;
    [[nodiscard]] int64_t most_nodes_at(const Waiting& parts, int64_t turn) const;
    [[nodiscard]] int64_t turn_of(const Waiting& parts, int64_t node) const;
    template <typename Receive>
    void send_nodes(const Waiting& parts, const Receive& receive);
    template <typename Receive>
    void send_edges(const Waiting& parts, const Receive& receive);
    [[nodiscard]] bool run_in_memory(const Waiting& parts);
    void run_from_files(const Waiting& parts, const AfterParts& after_parts);
    void choose(const Waiting& parts, int64_t turn, std::vector<PartNode>& nodes,
                const PartEdges& edges);
    void tell(std::span<const int64_t> chosen);

    SelectContext& context_;
    SelectionState& state_;
    uint64_t edge_bytes_;
    GraphRows rows_;
    Observe observe_;
};

}  // namespace vocabpipe

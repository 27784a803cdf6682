// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace vocabpipe {

/// Parameters of a family's rule; 0: the family's default. A family refuses a depth, a group
/// size or a memory limit that its rule does not read (Generator). Training, planning and the tool
/// pass these through.
struct RuleOptions {
    int chunks = 0;         ///< v, stages per rank
    int warm_up_depth = 0;  ///< D of 1F1B; the default is 1; 2 for eager and for overlap_pairs
    int group_size = 0;  ///< N of interleaved families; the default is one microbatch per rank (p)
    /// Cap on the activations alive on any rank, in chunks, of families that trade memory for
    /// bubble (zb, v-search); vocabulary barriers add their microbatches on top.
    int memory_limit = 0;
    /// Latency to hide between the last stage's F and the earliest S, in the unit of the costs:
    /// 1F1B's orders are built for B - broadcast_margin. 0 keeps the paper's lists.
    int64_t broadcast_margin = 0;
    /// Moves of a local search for a smaller makespan under the costs, after the family's rule
    /// (local_search.hpp); 0: no search. At most kMostSearchMoves.
    int64_t search_moves = 0;
    /// A backward and the forward behind it, of two microbatches, become an overlapped pair
    /// (Pass::with_next), as in Megatron's combined 1F1B. The default warm-up depth is 2 then, so
    /// that pairs of neighboring ranks need not wait for one another. false keeps the papers'
    /// lists.
    bool overlap_pairs = false;
};

/// Options of make_schedule().
struct ScheduleOptions {
    int ranks = 1;                           ///< p
    int microbatches = 1;                    ///< m, of one step
    VocabMode vocab_mode = VocabMode::none;  ///< what happens to the vocabulary layers
    int64_t vocab_size = 0;    ///< rows to shard; with fewer rows than ranks some shards stay empty
    bool input_layer = true;   ///< false: no rank has rows of the embedding, and nobody runs E, G
    bool output_layer = true;  ///< false: no rank has rows of the projection, and nobody runs S, T
    RuleOptions rule;          ///< parameters of the family's rule
    /// Times of passes; only ratios matter. A family's rule may depend on them, and vocabulary
    /// passes are placed by them.
    PassCosts costs;
    /// Called from time to time with the moves of a search tried so far; may throw to end it.
    std::function<void(int64_t done)> search_progress;
    bool forward_only =
        false;  ///< evaluation: E, F, S and the loss, no limit from passes in flight
};

/// Where the stages live: stage s of p ranks on rank s; on rank s mod p; or down the ranks and up
/// again: chunk s div p of s on rank s mod p where that chunk is even, else on p-1 - s mod p.
enum class Placement : uint8_t { straight, loop, v_shape };

/// One schedule family. `make` may assume 1 <= ranks, 1 <= microbatches, costs >= 0 and chunks >= 1
/// (the family's own where the caller gave none). It returns either the transformer passes only,
/// with shard maps of 0 rows, into which make_schedule() inserts the vocabulary passes; or all
/// passes, if the family has an order of its own for them.
struct Generator {
    std::string_view name;                      ///< as typed after --schedule
    std::string_view summary;                   ///< one line for listings
    Placement placement = Placement::straight;  ///< of its stages
    int chunks = 1;                             ///< v when the caller gives none
    bool any_chunks = false;                    ///< whether other v are possible
    bool splits_backward = false;               ///< may run I and W instead of B
    /// The rule tries many orders, which takes long. Of the costs it reads those of stages and the
    /// hop; vocabulary modes do not matter.
    bool searches = false;
    // Options that the rule reads; make_schedule() refuses those that it would ignore.
    bool warm_up_depth = false;  ///< reads RuleOptions::warm_up_depth
    bool group_size = false;     ///< reads RuleOptions::group_size
    bool memory_limit = false;   ///< reads RuleOptions::memory_limit
    bool overlap_pairs = false;  ///< its order has, or leaves, forwards and backwards to overlap
    /// The rule: makes the schedule.
    Schedule (*make)(const ScheduleOptions&) = nullptr;
};

/// Every built-in family, in the order in which listings show them.
[[nodiscard]] std::span<const Generator> generators();

/// The family of that name. Throws UsageError naming the known ones.
[[nodiscard]] const Generator& generator(std::string_view name);

/// The schedule of family `name`; passes on empty shards are left out. Throws UsageError for an
/// unknown name (naming the known ones) or impossible options.
[[nodiscard]] Schedule make_schedule(std::string_view name, const ScheduleOptions& options);

/// Stages, shard maps and barriers of the schedule that make_schedule() returns, without passes:
/// all that costs and sizes of the passes depend on. Throws UsageError as make_schedule() does for
/// the options.
[[nodiscard]] Schedule placement_of(std::string_view name, const ScheduleOptions& options);

/// The part of make_schedule() after the family's rule, for any schedule: makes pairs if
/// overlap_pairs, adds E, S, T and G as the mode requires if the output layer has no rows yet, then
/// searches if search_moves > 0. Of the options it reads vocab_mode, vocab_size, costs,
/// forward_only, and of the rule chunks (with memory_limit), memory_limit, search_moves and
/// overlap_pairs. Throws as insert_vocabulary().
[[nodiscard]] Schedule finish_schedule(Schedule schedule, const ScheduleOptions& options);

/// Transformer layers per stage. Even split (the first num_layers % stages stages take one more),
/// except VocabMode::redistributed, which moves layers away from the last stage: with q = output
/// layer / one transformer layer in FLOPs it keeps max(0, ceil((L + q) / p - q)) layers, and the
/// others share the rest.
[[nodiscard]] std::vector<int> layers_per_stage(int num_layers, int stages, VocabMode mode,
                                                double output_layer_in_layers);

/// Work of the last stage besides its transformer layers, in units of one.
struct LastStageWork {
    double output_layer = 0;  ///< the whole output layer: counts where layers are redistributed
    double mtp_layers = 0;    ///< all depths of multi-token prediction: count in every mode
};

/// The same for stages on any ranks, rank_of_stage[stage]. Where a rank has several stages, the
/// paper's rule for `redistributed` does not hold (on a V the rank of the last stage has the first
/// one, too); then it is the partition in which the busiest rank has the least work
/// (balanced_layers()). So it is in every mode where the last stage predicts several tokens.
[[nodiscard]] std::vector<int> layers_per_stage(int num_layers, std::span<const int> rank_of_stage,
                                                VocabMode mode, const LastStageWork& last = {});

}  // namespace vocabpipe

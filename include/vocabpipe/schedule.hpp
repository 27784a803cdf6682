// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Which rows of the vocabulary live on which rank: rank k holds rows first_row[k] to
/// first_row[k + 1] - 1. Shards may be uneven or empty; all rows on one rank is the ordinary,
/// unsharded layer.
struct ShardMap {
    std::vector<int64_t> first_row;  ///< ranks + 1 entries, ascending, first 0, last V

    /// Rows split as evenly as integers allow: first_row[k] = floor(V k / ranks).
    [[nodiscard]] static ShardMap even(int64_t vocab_size, int ranks);
    /// All rows on `owner`.
    [[nodiscard]] static ShardMap whole(int64_t vocab_size, int ranks, int owner);

    /// p, ranks of the pipeline.
    [[nodiscard]] int ranks() const { return static_cast<int>(first_row.size()) - 1; }
    /// V, rows of the vocabulary.
    [[nodiscard]] int64_t vocab_size() const { return first_row.back(); }
    /// First row of the rank.
    [[nodiscard]] int64_t begin(int rank) const { return first_row[static_cast<size_t>(rank)]; }
    /// One after the last row of the rank.
    [[nodiscard]] int64_t end(int rank) const { return first_row[static_cast<size_t>(rank) + 1]; }
    /// Rows of the rank; may be 0.
    [[nodiscard]] int64_t rows(int rank) const { return end(rank) - begin(rank); }
    /// Ranks with at least one row, ascending.
    [[nodiscard]] std::vector<int> owners() const;

    /// Member by member.
    friend bool operator==(const ShardMap&, const ShardMap&) = default;
};

/// How the output layer's backward is tied to its forward (paper sections 4.2 and 4.3).
enum class Barriers : uint8_t {
    in_line,  ///< S and T back to back, the input gradient is formed in T
    one,  ///< Algorithm 2 (Vocab-2): the input gradient is formed in S, only C1 before the last B
    two,  ///< Algorithm 1 (Vocab-1): the input gradient is formed in T, C1 and C2 before the last B
};

/// How the vocabulary layers are distributed; decides shard maps, barriers and pass orders.
enum class VocabMode : uint8_t { none, redistributed, interlaced, one_barrier, two_barriers };

[[nodiscard]] std::string_view to_string(VocabMode mode);
/// Throws UsageError naming the valid modes.
[[nodiscard]] VocabMode vocab_mode_from(std::string_view name);

/// Whether the mode puts a shard of the vocabulary on every rank, so that every rank runs E, S, T,
/// G.
[[nodiscard]] bool sharded(VocabMode mode);
/// Microbatches in flight that the mode adds to those of the transformer: at most one per barrier
/// between the last stage's F and B (paper, section 5.2).
[[nodiscard]] int extra_microbatches(VocabMode mode);

/// A schedule is data: per rank an ordered list of passes, compute only. Communication, buffers and
/// their lifetimes are inferred from it (lower.hpp), whether it was written by hand, read from a
/// file or made by a generator.
struct Schedule {
    int ranks = 0;                          ///< p
    int stages = 0;                         ///< of the whole pipeline
    int microbatches = 0;                   ///< m, of one step
    std::vector<int> rank_of_stage;         ///< stages entries
    ShardMap input;                         ///< E and G run exactly on the ranks that hold rows
    ShardMap output;                        ///< S and T run exactly on the ranks that hold rows
    Barriers barriers = Barriers::in_line;  ///< how S and T are tied together
    std::vector<std::vector<Pass>> passes;  ///< [rank]; no backward and no T anywhere: evaluation
    /// Stages before this one have no backward, because nothing up to there is trained.
    int first_backward = 0;
    bool embedding_gradient = true;  ///< false: no G, because the embedding is frozen

    /// True when no rank runs a backward: F, E, S and the loss only.
    [[nodiscard]] bool forward_only() const;
};

/// The forward part of a schedule: per rank F, E and S in their order. Weights and shards stay in
/// place, so the losses have the same bits.
[[nodiscard]] Schedule evaluation_schedule(Schedule training);

/// Shard maps and barriers of the mode, for a schedule whose ranks and placement are set. Whole
/// layers go to the ranks of the first and the last stage.
void place_vocabulary(Schedule& schedule, VocabMode mode, int64_t vocab_size);

}  // namespace vocabpipe

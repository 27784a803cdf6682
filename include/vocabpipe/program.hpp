// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/mesh.hpp"
#include "vocabpipe/pass.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// What an action does. Which buffers it works on, and in which order, is the struct of the same
/// name in src/schedule/operands.hpp; what else there is to know of it is its row in
/// src/schedule/ops.hpp.
enum class Do : uint8_t {
    pass,             ///< of the schedule, or of the end of the step
    send,             ///< to the second rank of the group
    receive,          ///< from the first rank of the group
    broadcast,        ///< from the group's root
    all_gather,       ///< the members' parts, of one size, go to every member, in group order
    all_to_all,       ///< row block i of every member's partial goes to member i
    gather,           ///< the members' row blocks go to the root, in group order
    all_gather_v,     ///< the members' row blocks go to every member
    combine_softmax,  ///< softmax factors of all shards' statistics; with one barrier also
                      ///< completes the input gradient in place
    ordered_sum,      ///< adds blocks in group order and converts to the sum's type
    reduce,  ///< the members' partials, added up in their type and whatever order the transport
             ///< likes, go to the root, which alone has a sum
};

/// Ordered queues of a rank. Compute actions run to completion one after the other; communication
/// actions of a lane start in order and complete on their own; combine_softmax and ordered_sum have
/// a lane of their own so that one that still waits for a slow peer does not hold up the next
/// broadcast.
enum class Lane : uint8_t { compute, forward, backward, collective, local };
inline constexpr int kLanes = 5;

[[nodiscard]] std::string_view to_string(Do what);
[[nodiscard]] std::string_view to_string(Lane lane);

inline constexpr uint32_t kNoBuffer = UINT32_MAX;

/// What a buffer's bytes are for; the rows of the memory report.
enum class Purpose : uint8_t {
    boundary,      ///< stage inputs, outputs and their gradients
    activation,    ///< saved by F or made again by R for the backward, saved by I for W
    vocabulary,    ///< X, exp_logits, statistics, factors, input gradient of the output layer
    partial_sums,  ///< of vocabulary shards, on their way
    workspace,     ///< of one pass
    report,        ///< norms and loss of the step
    tied,          ///< gradient of a tied weight on its way
    replicas,      ///< gradients of the replicas on their way
};
inline constexpr int kPurposes = 8;
[[nodiscard]] std::string_view to_string(Purpose purpose);

/// A buffer with a birth and a death, in the arena; or memory that outlives the step.
struct Buffer {
    /// Where a buffer lies: in the executor's arena, or in memory that outlives the step.
    enum class Space : uint8_t {
        arena,
        embedding_gradient,
        output_gradient,
        bucket_gradients,  ///< of StepSizes::buckets[rank][bucket], fp32
        bucket_weights,    ///< of the same bucket, in the run's type
    };
    uint64_t bytes = 0;                   ///< size
    uint64_t offset = 0;                  ///< in the arena or the bucket
    uint32_t born = 0;                    ///< index of the action that writes it first
    uint32_t dies = 0;                    ///< index of the last action that uses it
    uint16_t bucket = 0;                  ///< which one, where the space is a bucket's
    Space space = Space::arena;           ///< where it lies
    Purpose purpose = Purpose::boundary;  ///< what it is for
};

/// Ranks that take part in one communication, ascending for collectives.
struct Group {
    std::vector<int> ranks;      ///< in the order of their parts
    int root = -1;               ///< rank; -1 where none is special
    Axis axis = Axis::pipeline;  ///< of the mesh: which of their coordinates differ
    /// Member by member.
    friend bool operator==(const Group&, const Group&) = default;
};

/// An ordered reduction over a group: partial rows go to the owners of row blocks, are folded in
/// group order, and go on to the root. Same volume as reduce-scatter + gather, same bits on every
/// transport. A native one is a `reduce` of all rows at once, and an ordered_sum at the root where
/// the result has another type.
struct Reduction {
    std::vector<int64_t> first_row;  ///< group size + 1 entries: rows of block i
    int64_t cols = 0;                ///< columns of what is added up
    DType partial = DType::fp32;     ///< of the partial sums
    DType result = DType::fp32;      ///< of the sum
    /// Where the blocks end, of pieces of buckets, which lie apart; empty: where the next begins.
    std::vector<int64_t> last_row;
    /// Row after the member's last.
    [[nodiscard]] int64_t end(int member) const {
        return last_row.empty() ? first_row[static_cast<size_t>(member) + 1]
                                : last_row[static_cast<size_t>(member)];
    }
    /// Rows of the part that the member adds up.
    [[nodiscard]] int64_t rows(int member) const {
        return end(member) - first_row[static_cast<size_t>(member)];
    }
    /// Member by member.
    friend bool operator==(const Reduction&, const Reduction&) = default;
};
inline constexpr uint16_t kOutputReduction = 0;  ///< gradient of X over the output shards
inline constexpr uint16_t kInputReduction = 1;   ///< embedded tokens over the input shards
/// All rows of the output reduction as one block: the conversion after a native one.
inline constexpr uint16_t kOutputConversion = 2;

/// One step of a rank's program.
struct Action {
    Do what = Do::pass;         ///< kind
    Lane lane = Lane::compute;  ///< what it runs on
    uint8_t operand_count = 0;  ///< how many of Program::operands
    bool accumulate = true;     ///< false: first of the step to write its weights' gradients
    uint16_t reduction = 0;     ///< of all_to_all, ordered_sum, gather, all_gather_v, reduce
    uint16_t group = 0;         ///< index into groups; 0 where it has none
    uint8_t pieces = 1;         ///< by which a message or broadcast travels; see LowerOptions
    uint32_t item = 0;          ///< index into passes; bucket with replicas; else microbatch
    uint32_t order = 0;  ///< position in the global order; equal on all ranks of one communication
    uint32_t first_operand = 0;  ///< index into Program::operands
};

/// `after` must not start before `before` has completed; both are actions of the same rank. Data
/// and reuse of memory (write after read) both appear here.
struct Edge {
    uint32_t before = 0;  ///< index into Program::actions
    uint32_t after = 0;   ///< index into Program::actions
};

/// How long an overlapped pair takes: its members one after the other, each with its own inputs and
/// outputs (what a runtime without real overlap does); or as one pass that waits for the inputs of
/// both, and lasts the sum or the longer of the two.
enum class Pairs : uint8_t { apart, sum, longest };

/// Which of the programs that an executor holds, from 0; the caller numbers them.
using ProgramId = size_t;

/// Everything one rank does in one step, in the projection of one global order.
struct Program {
    int rank = 0;          ///< whose it is
    int ranks = 0;         ///< of the world
    int microbatches = 0;  ///< of one step
    /// How the passes with Pass::with_next were lowered. The edges say it all but for `longest`,
    /// where a simulated pair takes as long as its longer member; the executor runs them in turn.
    Pairs pairs = Pairs::apart;
    uint64_t hash = 0;  ///< of all ranks' programs together: equal on every rank or nothing runs
    std::vector<Pass> passes;           ///< in the order of the schedule
    std::vector<Group> groups;          ///< that the rank takes part in
    std::vector<Reduction> reductions;  ///< kOutputReduction, ..., and others that the rank uses
    std::vector<Action> actions;        ///< in the global order, as far as they are this rank's
    std::vector<uint32_t> operands;     ///< indices into buffers, or kNoBuffer
    std::vector<Buffer> buffers;        ///< with birth and death
    std::vector<Edge> edges;            ///< what waits for what
    /// Streamed edges, as ascending indices into edges: between a pass and the communication of
    /// what it makes or uses. `after` may start with the first rows that `before` has made or
    /// received, and ends after it. Whoever takes such an edge for a usual one is right, too.
    std::vector<uint32_t> streamed;
    uint64_t arena_bytes = 0;      ///< packed
    uint64_t live_peak_bytes = 0;  ///< largest sum of buffers alive at one moment, <= arena_bytes
    std::vector<uint64_t> peak_by_purpose;  ///< kPurposes entries, bytes alive at the live peak

    /// Indices into buffers.
    [[nodiscard]] std::span<const uint32_t> operands_of(const Action& action) const {
        return {operands.data() + action.first_operand, action.operand_count};
    }
    /// "2F0", "send 2F0 to rank 3", "C1 statistics 4": for messages and traces.
    [[nodiscard]] std::string name_of(const Action& action) const;
};

}  // namespace vocabpipe

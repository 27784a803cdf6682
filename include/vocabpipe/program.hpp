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

/// What an action does. The struct of the same name in src/schedule/operands.hpp lists its buffers
/// in order; its row in src/schedule/ops.hpp holds its other properties.
///
/// In a communication every rank of the action's group takes part, at the same Action::order, and
/// starts without waiting for the others. Parts and blocks are in the order of Group::ranks. Rows,
/// columns and types of blocks are those of the action's Reduction. Bytes move as they are: reduce
/// alone computes. The buffers of an action are apart, except where its kind says "in place". A
/// function of MPI stands for its nonblocking form, too.
enum class Do : uint8_t {
    /// A pass of the schedule, or of the end of the step: no communication.
    pass,

    /// Sends a message to the second rank of the group, which receives it. Messages of one lane
    /// between two ranks arrive in the order sent. With Action::pieces, rows travel by pieces.
    /// * `message`: read; as large as the receiver's.
    /// * Equivalent to: ncclSend, MPI_Send
    send,

    /// Receives the message of the first rank of the group.
    /// * `message`: written, all of it.
    /// * Equivalent to: ncclRecv, MPI_Recv
    receive,

    /// Copies the buffer of the root, a member, to all other ranks of the group. With
    /// Action::pieces, rows travel by pieces.
    /// * `message`: read on the root, written elsewhere; one size.
    /// * In place: always, as a rank has one buffer.
    /// * Equivalent to: ncclBroadcast, MPI_Bcast
    broadcast,

    /// Puts the parts of all ranks one behind the other, on every rank.
    /// * `mine`: read; one size on all ranks.
    /// * `all`: written; group size times as large.
    /// * In place: transports allow that `mine` is this rank's part of `all`; programs have two
    ///   buffers.
    /// * Equivalent to: ncclAllGather, MPI_Allgather
    all_gather,

    /// Sends row block i of every rank's partial to rank i: the first part of an ordered reduction.
    /// * `partial`: read; the row blocks of all ranks, in Reduction::partial. Block i has one size
    ///   on all ranks, and another block may have another size. Gaps between blocks
    ///   (Reduction::last_row) stay.
    /// * `blocks`: written; this rank's block of every partial. Where `partial` is in a bucket of
    ///   gradients, this rank's own block is left out: the ordered_sum finds it in the bucket.
    /// * `whole`: read in place of `partial`, which is a piece of it (gradients of a stage that
    ///   ranks share); else none.
    /// * Equivalent to: MPI_Alltoallv; over NCCL, ncclSend and ncclRecv in a group
    all_to_all,

    /// Puts the row blocks of all ranks into their places, on the root, a member that may have no
    /// rows: the last part of an ordered reduction.
    /// * `block`: read; this rank's rows, in Reduction::result. A root without rows has none.
    /// * `whole`: written on the root; other ranks have none.
    /// * Equivalent to: MPI_Gatherv; over NCCL, ncclSend and ncclRecv in a group
    gather,

    /// Puts the row blocks of all ranks into their places, on every rank.
    /// * `block`: read; this rank's rows, in Reduction::result.
    /// * `whole`: written, but for a block that is in place.
    /// * In place: where `whole` is a bucket of weights and `block` this rank's part of it. Where
    ///   ranks keep their own parts alone, `whole` is in the arena.
    /// * Equivalent to: MPI_Allgatherv; over NCCL, ncclSend and ncclRecv in a group
    all_gather_v,

    /// A local action: the softmax factors of this rank's shard.
    /// * `statistics`: read; of all shards, in group order.
    /// * `factors`: written; none in an evaluation.
    /// * `input_gradient`: completed in place, with one barrier; else none.
    /// * `exp_logits`: read, where S has kept the logits behind them (StepSizes::keeps_logits);
    /// else
    ///   none.
    combine_softmax,

    /// A local action: adds up blocks in group order, in fp32, and rounds once. The bits are the
    /// same on every transport and device.
    /// * `blocks`: read; one for each rank of the group, in Reduction::partial. With `before` the
    ///   first one is written, too.
    /// * `sum`: written, in Reduction::result.
    /// * `before`: the same buffer as `sum`, whose old value the sum is added to; else none.
    /// * In place: a `sum` in a bucket of gradients begins as this rank's own block, which is not
    ///   read from `blocks`.
    ordered_sum,

    /// Adds up the partials of all ranks on the root, a member (Reductions::native).
    /// * `partial`: read; all rows, in Reduction::partial.
    /// * `sum`: written on the root, as large and in the same type; other ranks have none.
    /// * Order of the sum: the transport's. With messages the root adds in group order, in fp32,
    ///   and rounds once; NCCL has its own order and rounding. Copies between GPUs refuse.
    /// * Equivalent to: ncclReduce with ncclSum, MPI_Reduce with MPI_SUM
    reduce,
};

/// Ordered queues of a rank. Compute actions run to completion one after the other; communication
/// actions of a lane start in order and complete independently. combine_softmax and ordered_sum
/// have a separate lane, so that one that waits for a slow peer does not delay the next broadcast.
enum class Lane : uint8_t { compute, forward, backward, collective, local };
inline constexpr int kLanes = 5;

[[nodiscard]] std::string_view to_string(Do what);
[[nodiscard]] std::string_view to_string(Lane lane);

inline constexpr uint32_t kNoBuffer = UINT32_MAX;

/// What a buffer's bytes are for; the rows of the memory report.
enum class Purpose : uint8_t {
    boundary,         ///< stage inputs, outputs and their gradients
    activation,       ///< saved by F or recomputed by R for the backward, saved by I for W
    vocabulary,       ///< X, exp_logits, statistics, factors, input gradient of the output layer
    partial_sums,     ///< of vocabulary shards, in transfer
    workspace,        ///< of one pass
    report,           ///< norms and loss of the step
    tied,             ///< gradient of a tied weight, in transfer
    replicas,         ///< gradients of the replicas, in transfer
    stage_weights,    ///< gathered, where ranks keep only their own part
    stage_gradients,  ///< whole, where ranks keep only their own part
};
inline constexpr int kPurposes = 10;
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
        own_gradients,     ///< of the same bucket, where this rank keeps only its own part
        own_weights,       ///< of the same bucket, where this rank keeps only its own part
        piece,             ///< the piece of another buffer that AllToAllOperands::whole names
        shared_gradient,   ///< of use `bucket` of StepSizes::shared_weights, counted over all
    };
    uint64_t bytes = 0;                   ///< size
    uint64_t offset = 0;                  ///< in the arena or the bucket
    uint32_t born = 0;                    ///< index of the action that writes it first
    uint32_t dies = 0;                    ///< index of the last action that uses it
    uint16_t bucket = 0;                  ///< index of the bucket, or of the use of a shared weight
    Space space = Space::arena;           ///< where it lies
    Purpose purpose = Purpose::boundary;  ///< what it is for
};

/// Ranks that take part in one communication, ascending for collectives.
struct Group {
    std::vector<int> ranks;      ///< in the order of their parts
    int root = -1;               ///< rank; -1: no root
    Axis axis = Axis::pipeline;  ///< of the mesh: which coordinates of the ranks differ
    /// Member by member.
    friend bool operator==(const Group&, const Group&) = default;
};

/// A reduction over a group. An ordered one sends partial rows to the owners of row blocks, who add
/// them in group order and send the sums to the root: the volume of reduce-scatter + gather, the
/// same bits on every transport. A native one (Reductions::native) is a `reduce` of all rows at
/// once, and an ordered_sum at the root if the result has another type.
struct Reduction {
    std::vector<int64_t> first_row;  ///< group size + 1 entries: rows of block i
    int64_t cols = 0;                ///< columns of the rows
    DType partial = DType::fp32;     ///< of the partial sums
    DType result = DType::fp32;      ///< of the sum
    /// Ends of the blocks, for pieces of buckets, whose blocks are not adjacent; empty: each block
    /// ends where the next begins.
    std::vector<int64_t> last_row;
    bool embeds = false;  ///< adds up embedded tokens
    /// Row after the member's last.
    [[nodiscard]] int64_t end(int member) const {
        return last_row.empty() ? first_row[static_cast<size_t>(member) + 1]
                                : last_row[static_cast<size_t>(member)];
    }
    /// Rows of the block that the member adds up.
    [[nodiscard]] int64_t rows(int member) const {
        return end(member) - first_row[static_cast<size_t>(member)];
    }
    /// Member by member.
    friend bool operator==(const Reduction&, const Reduction&) = default;
};
// Reductions of microbatches of the longest sequences; every other length has three of its own.
inline constexpr uint16_t kOutputReduction = 0;  ///< gradient of X over the output shards
inline constexpr uint16_t kInputReduction = 1;   ///< embedded tokens over the input shards
/// All rows of the output reduction as one block: the conversion after a native one.
inline constexpr uint16_t kOutputConversion = 2;

/// One step of a rank's program.
struct Action {
    Do what = Do::pass;         ///< kind
    Lane lane = Lane::compute;  ///< lane it runs in
    uint8_t operand_count = 0;  ///< number of entries in Program::operands
    /// false: its weights' gradients begin anew: the first pass of the step to write them, or of a
    /// use where ranks share them (ZeroOptions)
    bool accumulate = true;
    uint16_t reduction = 0;  ///< index, for all_to_all, ordered_sum, gather, all_gather_v, reduce
    uint16_t group = 0;      ///< index into groups; 0 where it has none
    uint8_t pieces = 1;      ///< of a message or broadcast; see LowerOptions
    /// 1, 2: the first and the second pass of a pair that run on two lanes of the rank
    /// (LowerOptions::overlap_pairs); 0: no other pass runs at the same time.
    uint8_t pair_member = 0;
    uint32_t item = 0;   ///< index into passes; bucket with replicas; else microbatch
    uint32_t order = 0;  ///< position in the global order; equal on all ranks of one communication
    uint32_t first_operand = 0;  ///< index into Program::operands
};

/// `after` must not start before `before` has completed; both are actions of the same rank. Data
/// and reuse of memory (write after read) both appear here.
struct Edge {
    uint32_t before = 0;  ///< index into Program::actions
    uint32_t after = 0;   ///< index into Program::actions
};

/// Id of a program in an executor, from 0; chosen by the caller.
using ProgramId = size_t;

/// Everything one rank does in one step: its projection of the global order.
struct Program {
    int rank = 0;                 ///< rank that runs it
    int ranks = 0;                ///< of the world
    int microbatches = 0;         ///< of one step
    std::vector<int64_t> tokens;  ///< [microbatch] N, of one context rank
    uint64_t hash = 0;  ///< of all ranks' programs together: equal on every rank or nothing runs
    std::vector<Pass> passes;           ///< in the order of the schedule
    std::vector<Group> groups;          ///< groups of which the rank is a member
    std::vector<Reduction> reductions;  ///< kOutputReduction, ..., and others that the rank uses
    std::vector<Action> actions;        ///< of this rank, in the global order
    std::vector<uint32_t> operands;     ///< indices into buffers, or kNoBuffer
    std::vector<Buffer> buffers;        ///< with birth and death
    std::vector<Edge> edges;            ///< dependencies
    /// Streamed edges, as ascending indices into edges: between a pass and the communication of
    /// what it makes or uses. `after` may start with the first rows that `before` has made or
    /// received, and ends after it. Treating it as a plain edge is also correct.
    std::vector<uint32_t> streamed;
    uint64_t arena_bytes = 0;      ///< packed
    uint64_t live_peak_bytes = 0;  ///< largest sum of buffers alive at one moment, <= arena_bytes
    std::vector<uint64_t> peak_by_purpose;  ///< kPurposes entries, bytes alive at the live peak

    /// N of the microbatch of a pass, communication or local action that belongs to one.
    [[nodiscard]] int64_t tokens_of(const Action& action) const {
        return tokens[action.what == Do::pass ? passes[action.item].microbatch : action.item];
    }
    /// Indices into buffers.
    [[nodiscard]] std::span<const uint32_t> operands_of(const Action& action) const {
        return {operands.data() + action.first_operand, action.operand_count};
    }
    /// "2F0", "send 2F0 to rank 3", "C1 statistics 4": for messages and traces.
    [[nodiscard]] std::string name_of(const Action& action) const;
};

}  // namespace vocabpipe

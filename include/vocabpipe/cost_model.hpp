// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/microbatch_lengths.hpp"
#include "vocabpipe/program.hpp"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// What a communication of a rank waits for besides its edges. In their lane, combine_softmax and
/// ordered_sum wait in the same way.
enum class CommunicationOrder : uint8_t {
    /// For the start of the previous one in its lane; each ends on its own. Messages of host
    /// threads and MPI; nearest to time_passes(), where messages wait only for their pass.
    lanes,
    /// For the end of the previous one in its lane: lanes are streams of a GPU.
    streams,
    /// As `streams`, and for the start of the previous one in the program, in any lane: NCCL with
    /// NCCL_LAUNCH_ORDER_IMPLICIT=1, which the transport sets.
    launches,
    /// For the end of the previous one in the program, in any lane: how `launches` behaves with
    /// CUDA before 12.3, and may behave with any CUDA.
    serial,
};
inline constexpr std::array kCommunicationOrders{
    CommunicationOrder::lanes, CommunicationOrder::streams, CommunicationOrder::launches,
    CommunicationOrder::serial};
[[nodiscard]] std::string_view to_string(CommunicationOrder order);
/// The order with this name. Throws UsageError naming the known ones.
[[nodiscard]] CommunicationOrder communication_order_from(std::string_view name);

/// When a pass uses the rows of its streamed input and makes those of its output
/// (Program::streamed), in thousandths of its time: evenly over [0, input_end] and [output_begin,
/// output_end].
struct StreamedShare {
    int input_end = 0;            ///< 0: needs all rows at its start
    int output_begin = 1000;      ///< equal to output_end: makes all rows at once
    int output_end = 1000;        ///< below 1000: other work follows
    int64_t input_piece_ns = 0;   ///< added to the pass by each input piece but the first
    int64_t output_piece_ns = 0;  ///< the same for its output
};

/// Integer costs in nanoseconds (or any unit: only consistency matters). Must be identical on every
/// rank, because the global order is made from them.
class CostModel {
public:
    virtual ~CostModel() = default;
    /// Ranks of the world that these costs are for; 0: any number.
    [[nodiscard]] virtual int ranks() const { return 0; }
    /// Time of a pass on its rank. `rank` is a rank of the world, all replicas included.
    [[nodiscard]] virtual int64_t pass_ns(int rank, const Pass& pass) const = 0;
    /// Time from the moment every participant is ready to the moment every participant is done;
    /// `bytes` is what the busiest participant sends.
    [[nodiscard]] virtual int64_t transfer_ns(Do what, const Group& group, int64_t bytes) const = 0;
    /// combine_softmax and ordered_sum; `bytes` is what they read and write.
    [[nodiscard]] virtual int64_t local_ns(Do what, int64_t bytes) const = 0;
    /// How much longer the pass takes while its rank communicates, in thousandths of its own time:
    /// communication kernels take compute units and memory bandwidth. 0: not at all.
    [[nodiscard]] virtual int64_t overlap_slowdown_permille(int /*rank*/,
                                                            const Pass& /*pass*/) const {
        return 0;
    }
    /// Time of the pass in which it waits for its tensor, context or expert ranks, evenly over the
    /// pass: the other pass of a pair computes meanwhile (Action::pair_member). At most pass_ns().
    /// 0: none, or not known.
    [[nodiscard]] virtual int64_t exchange_ns(int /*rank*/, const Pass& /*pass*/) const {
        return 0;
    }
    /// When the pass uses and makes its streamed rows. Default: all at once.
    [[nodiscard]] virtual StreamedShare streamed_share(int /*rank*/, const Pass& /*pass*/) const {
        return {};
    }
    /// Time of a step that belongs to no action: launching, logging, reading data.
    [[nodiscard]] virtual int64_t fixed_step_ns() const { return 0; }
    /// Lengths of the microbatches, which pass_ns() counts already; for costs made of these.
    /// Default: all have one.
    [[nodiscard]] virtual MicrobatchLengths microbatch_lengths() const { return {}; }
    /// Order of the communication on the ranks that these costs describe.
    [[nodiscard]] virtual CommunicationOrder communication_order() const {
        return CommunicationOrder::lanes;
    }
};

// clang-format off
/// How k ranks do a collective. With a the latency, b the time of the bytes that the busiest rank
/// sends to one peer (broadcast: the message; all_gather, gather: one rank's part; all_to_all: the
/// whole partial sum), l = ceil(log2 k):
///
///   |                                                    | broadcast   | all_gather, gather | all_to_all          |
///   |----------------------------------------------------|-------------|--------------------|---------------------|
///   | linear: one peer after the other, messages pipelined | a + (k-1) b | a + (k-1) b      | a + b (k-1)/k       |
///   | ring: from neighbour to neighbour, in pieces       | (k-1) a + b | (k-1) (a + b)      | (k-1) a + b (k-1)/k |
///   | tree: doubling distances                           | l (a + b)   | l a + (k-1) b      | l (a + b/2)         |
///   | direct: all peers at once, a link for each pair    | a + b       | a + b              | a + b               |
///
/// (binomial tree, recursive doubling, Bruck; Thakur, Rabenseifner, Gropp 2005).
// clang-format on
enum class CollectiveAlgorithm : uint8_t { linear, ring, tree, direct };

/// The algorithm of every kind of collective.
struct CollectiveAlgorithms {
    // Defaults: what this library's transports do, every collective as messages between its ranks.
    /// C0: the last stage's output to all shards.
    CollectiveAlgorithm broadcast = CollectiveAlgorithm::linear;
    /// C1: statistics of all shards, and the reports of a step.
    CollectiveAlgorithm all_gather = CollectiveAlgorithm::linear;
    CollectiveAlgorithm gather = CollectiveAlgorithm::linear;  ///< row blocks to their root
    /// Partial sums: one row block to every member.
    CollectiveAlgorithm all_to_all = CollectiveAlgorithm::direct;
};

/// Cost of a pass from its row of a table. An R without a cost of its own does all that F did.
[[nodiscard]] constexpr int64_t cost_in(const std::array<int64_t, kOpTraits.size()>& row, Op op) {
    const int64_t own = row[static_cast<size_t>(op)];
    return op == Op::R && own == 0 ? row[static_cast<size_t>(Op::F)] : own;
}

/// Whether it is a collective of the ranks of one pipeline: of a vocabulary pass (C0, C1, C2, and
/// those of E and G), or in a world of one pipeline the reports of a step.
[[nodiscard]] bool is_of_pipeline(Do what, const Group& group);

/// Costs by table: transformer passes by stage, vocabulary passes by rank; links by latency and
/// rate.
class TableCosts final : public CostModel {
public:
    using OpCosts = std::array<int64_t, kOpTraits.size()>;  ///< [op], as in kOpTraits
    std::vector<OpCosts> stage_ns;                          ///< [stage][op]: F, B, I, W, R
    std::vector<OpCosts> rank_ns;     ///< [pipeline rank][op]: E, G, S, T, Reduce, Report, Update
    MicrobatchLengths lengths;        ///< the rows are those of the longest
    int slices = 1;                   ///< Mesh::slices(): ranks of the world per row of rank_ns
    int64_t latency_ns = 0;           ///< per message
    double bytes_per_ns = 0;          ///< per link; 0: infinitely fast
    double local_bytes_per_ns = 0;    ///< combine_softmax, ordered_sum; 0: infinitely fast
    CollectiveAlgorithms algorithms;  ///< for transfer_ns()
    /// Slowdown of every pass. The published runs with barriers show 46 to 51 on F and 23 to 29 on
    /// B against interlaced ones (means of benchmarks/data/published_pass_times.csv); 0 where pass
    /// times were measured in a run that communicates.
    int64_t slowdown_permille = 0;
    int64_t fixed_ns = 0;                      ///< see CostModel::fixed_step_ns
    bool free_vocabulary_collectives = false;  ///< is_of_pipeline() costs nothing; to compare
    /// Transformer layers of a stage, for streamed_share(). 0: not known, all rows are used and
    /// made at once.
    double layers_per_stage = 0;
    /// Cost of each additional product where one is computed in pieces, for streamed_share(): its
    /// weight is read again. 0: none.
    int64_t piece_ns = 0;
    /// Share of F, B and I for exchange_ns(), in thousandths of their time, 0 to 1000.
    int64_t exchange_permille = 0;
    /// Default: lanes of hosts, with which the published figures were simulated; costs measured on
    /// GPUs set their own.
    CommunicationOrder communication = CommunicationOrder::lanes;

    /// The same costs for every stage and rank: forward, backward = I + W, and one cost for E, G,
    /// S, T.
    [[nodiscard]] static TableCosts uniform(int ranks, int stages, int64_t forward,
                                            int64_t backward, int64_t vocabulary_pass);

    /// rank_ns.size() x slices.
    [[nodiscard]] int ranks() const override { return static_cast<int>(rank_ns.size()) * slices; }
    /// From stage_ns or rank_ns. Throws UsageError if they have no such row.
    [[nodiscard]] int64_t pass_ns(int rank, const Pass& pass) const override;
    [[nodiscard]] int64_t transfer_ns(Do what, const Group& group, int64_t bytes) const override;
    [[nodiscard]] int64_t local_ns(Do what, int64_t bytes) const override;
    [[nodiscard]] int64_t overlap_slowdown_permille(int rank, const Pass& pass) const override;
    [[nodiscard]] int64_t exchange_ns(int rank, const Pass& pass) const override;
    /// From the FLOPs of a dense layer, attention scores not counted: F begins with 3 h^2 for q, k
    /// and v, then h^2 for attention's output, and ends with 8 h^2 for the MLP; the backward in
    /// reverse. S uses X in its first product; T has made u half way. A piece costs one product
    /// more for q, k and v or S, and two for an MLP.
    [[nodiscard]] StreamedShare streamed_share(int rank, const Pass& pass) const override;
    [[nodiscard]] int64_t fixed_step_ns() const override { return fixed_ns; }
    [[nodiscard]] MicrobatchLengths microbatch_lengths() const override { return lengths; }
    [[nodiscard]] CommunicationOrder communication_order() const override { return communication; }
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/program.hpp"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// What a communication of a rank waits for, besides its edges. combine_softmax and ordered_sum
/// wait for the one before it in its lane as a communication does.
enum class CommunicationOrder : uint8_t {
    /// For the start of the one before it in its lane; it ends on its own. Messages of host threads
    /// and MPI; nearest to time_passes(), where messages wait for nothing but their pass.
    lanes,
    /// For the end of the one before it in its lane: lanes are streams of a GPU.
    streams,
    /// The same, and for the start of the one before it in the program, of whatever lane: NCCL with
    /// NCCL_LAUNCH_ORDER_IMPLICIT=1, which the transport sets.
    launches,
    /// For the end of the one before it in the program, of whatever lane: what `launches` is with
    /// CUDA before 12.3, and what CUDA may make of it at any time.
    serial,
};
inline constexpr std::array kCommunicationOrders{
    CommunicationOrder::lanes, CommunicationOrder::streams, CommunicationOrder::launches,
    CommunicationOrder::serial};
[[nodiscard]] std::string_view to_string(CommunicationOrder order);
/// Of its name. Throws UsageError naming the known ones.
[[nodiscard]] CommunicationOrder communication_order_from(std::string_view name);

/// Where in a pass the rows of its streamed input are used and those of its output are made
/// (Program::streamed), in thousandths of its time: evenly over [0, input_end] and
/// [output_begin, output_end].
struct StreamedShare {
    int input_end = 0;            ///< 0: all rows are used at once
    int output_begin = 1000;      ///< as output_end: all are made at once
    int output_end = 1000;        ///< before 1000: the pass goes on with something else
    int64_t input_piece_ns = 0;   ///< what each piece of its input but the first adds to the pass
    int64_t output_piece_ns = 0;  ///< the same of its output
};

/// Integer costs in nanoseconds (or any unit: only consistency matters). Must be identical on every
/// rank, because the global order is made from them.
class CostModel {
public:
    virtual ~CostModel() = default;
    /// Of the world that there are costs for; 0: any number.
    [[nodiscard]] virtual int ranks() const { return 0; }
    /// Time of a pass on its rank. `rank`: of the world, which has several replicas of a pipeline
    /// with data parallelism.
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
    /// Of a pass.
    [[nodiscard]] virtual StreamedShare streamed_share(int /*rank*/, const Pass& /*pass*/) const {
        return {};
    }
    /// Time of a step that belongs to no action: launching, logging, reading data.
    [[nodiscard]] virtual int64_t fixed_step_ns() const { return 0; }
    /// Of the lanes that the program runs on.
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
    CollectiveAlgorithm gather = CollectiveAlgorithm::linear;  ///< of partial sums to their root
    /// Of partial sums, a part to every member.
    CollectiveAlgorithm all_to_all = CollectiveAlgorithm::direct;
};

/// Cost of a pass from its row of a table. An R without a cost of its own does all that F did.
[[nodiscard]] constexpr int64_t cost_in(const std::array<int64_t, kOpTraits.size()>& row, Op op) {
    const int64_t own = row[static_cast<size_t>(op)];
    return op == Op::R && own == 0 ? row[static_cast<size_t>(Op::F)] : own;
}

/// Costs by table: transformer passes by stage, vocabulary passes by rank; links by latency and
/// rate.
class TableCosts final : public CostModel {
public:
    using OpCosts = std::array<int64_t, kOpTraits.size()>;  ///< [op], as in kOpTraits
    std::vector<OpCosts> stage_ns;                          ///< [stage][op]: F, B, I, W, R
    std::vector<OpCosts> rank_ns;     ///< [pipeline rank][op]: E, G, S, T, Reduce, Report, Update
    int slices = 1;                   ///< Mesh::slices(): so many ranks of the world share a row
    int64_t latency_ns = 0;           ///< per message
    double bytes_per_ns = 0;          ///< per link; 0: infinitely fast
    double local_bytes_per_ns = 0;    ///< combine_softmax, ordered_sum; 0: infinitely fast
    CollectiveAlgorithms algorithms;  ///< for transfer_ns()
    /// Of every pass. The published runs with barriers show 46 to 51 on F and 23 to 29 on B against
    /// interlaced ones (means of benchmarks/data/published_pass_times.csv); 0 where pass times were
    /// measured in a run that communicates.
    int64_t slowdown_permille = 0;
    int64_t fixed_ns = 0;  ///< see CostModel::fixed_step_ns
    /// Transformer layers of a stage, for streamed_share(). 0: not known, all rows are used and
    /// made at once.
    double layers_per_stage = 0;
    /// Price of a product more where one is computed by pieces, for streamed_share(): its weight is
    /// read again. 0: none.
    int64_t piece_ns = 0;
    /// Hosts' lanes, and what the published figures were simulated with; costs measured on GPUs
    /// bring their own.
    CommunicationOrder communication = CommunicationOrder::lanes;

    /// The same costs for every stage and rank: forward, backward = I + W, and one cost for E, G,
    /// S, T.
    [[nodiscard]] static TableCosts uniform(int ranks, int stages, int64_t forward,
                                            int64_t backward, int64_t vocabulary_pass);

    /// `slices` for every row of rank_ns.
    [[nodiscard]] int ranks() const override { return static_cast<int>(rank_ns.size()) * slices; }
    /// From stage_ns or rank_ns. Throws UsageError where they have no such row.
    [[nodiscard]] int64_t pass_ns(int rank, const Pass& pass) const override;
    [[nodiscard]] int64_t transfer_ns(Do what, const Group& group, int64_t bytes) const override;
    [[nodiscard]] int64_t local_ns(Do what, int64_t bytes) const override;
    [[nodiscard]] int64_t overlap_slowdown_permille(int rank, const Pass& pass) const override;
    /// By the FLOPs of a dense layer without attention's own: 3 h^2 for q, k and v, by which F
    /// begins, h^2, and 8 h^2 for the MLP, with which it ends; its backward the other way round. S
    /// uses X in its first product; T has made u half way. A piece is one product of q, k and v or
    /// of S, and two of an MLP.
    [[nodiscard]] StreamedShare streamed_share(int rank, const Pass& pass) const override;
    [[nodiscard]] int64_t fixed_step_ns() const override { return fixed_ns; }
    [[nodiscard]] CommunicationOrder communication_order() const override { return communication; }
};

}  // namespace vocabpipe

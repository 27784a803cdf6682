// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context_exchange.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/overlap_table.hpp"
#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/schedule.hpp"
#include "vocabpipe/token_loss.hpp"
#include "vocabpipe/token_record.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// The ranks and devices that a step runs on.
struct StepCluster {
    int ranks = 1;     ///< p, ranks of one pipeline; default 1: no further ranks
    int replicas = 1;  ///< d, copies of the pipeline (Mesh::data); default 1: no further ranks
    int context = 1;   ///< C, ranks that share sequences (Mesh::context); default 1: none
    int tensor = 1;    ///< t, ranks that share a stage (Mesh::tensor); default 1: no sharing
    int expert = 1;    ///< e, ranks that share a layer's experts (Mesh::expert); default 1: none
    int expert_tensor = 1;  ///< x, of these the neighbors that share each expert; default 1: none
    int threads_per_rank = 1;  ///< ranks x threads > cores is very slow
    /// Device::operators() of the ranks' devices, which decide the sizes of workspaces; null: the
    /// host's.
    const kernels::Operators* operators = nullptr;
    /// Device::communication_order() of the ranks' devices; default: the host's.
    CommunicationOrder communication = CommunicationOrder::lanes;
    /// Times of passes and messages measured there (profile.hpp). None: computed from FLOPs,
    /// without a measurement.
    std::optional<TableCosts> costs;
    /// Measurements of profile --overlap there, for the choice of StepSchedule::pieces.
    std::optional<OverlapTable> overlap;
};

/// The order of the passes of a step and their placement.
struct StepSchedule {
    std::string name = "1f1b";  ///< family; default: every paper compares with it
    /// Existing passes, for example from a file, instead of the family's rule. Not owned.
    const Schedule* passes = nullptr;
    VocabMode vocab_mode = VocabMode::one_barrier;  ///< least memory of the balanced ones
    RuleOptions rule;                       ///< parameters of the family; default 0: its own
    Recompute recompute = Recompute::none;  ///< what R makes again; default: time before memory
    /// Transformer layers of every stage. Empty: layers_per_stage().
    std::vector<int> layers_per_stage;
    /// StageModule::bytes() of each of your own stages. Empty: those of the model's layers.
    std::vector<StageBytes> stage_bytes;
    /// Costs that decide the order if the cluster has no measured costs. None: PassCosts(), in
    /// which a backward takes two forwards.
    std::optional<PassCosts> costs;
    int receive_ahead = 0;  ///< as in LowerOptions; 0: as early as it pays and memory allows
    Reductions reductions = Reductions::ordered;  ///< the same bits on every transport
    ZeroOptions zero;                             ///< what replicas share
    /// LowerOptions::pieces, and the pieces in which tensor ranks and expert ranks exchange rows
    /// and context ranks panels.
    /// 0: for boundaries those of the shortest step under the cluster's measured costs
    /// (choose_step_pieces()), or whole messages without measurements; for tensor and expert ranks
    /// those of the cluster's table, or without one whole messages and the defaults of
    /// ExpertPieces, for context ranks that of ContextExchange.
    int pieces = 1;
    double moe_row_factor = kMoeRowFactor;  ///< as in ModelPartition
    /// What context ranks exchange; with `pieces` above 0 in that many panels.
    ContextForm context_form = ContextForm::allgather;
    /// LowerOptions::overlap_pairs on hosts. false: for comparisons.
    bool overlap_pairs = true;
};

/// The data of a step and its purpose.
struct StepWork {
    int microbatches = 1;          ///< m, of every replica
    int64_t micro_batch_size = 1;  ///< sequences; 1 takes the least memory
    /// ModelPartition::shorter_lengths; default: all sequences have ModelConfig::seq_length.
    std::vector<int64_t> shorter_lengths = {};
    /// [microbatch] Tokens of its sequences: seq_length, or one of shorter_lengths. Empty: all have
    /// seq_length. They change neither the passes nor their order, only the programs.
    std::vector<int64_t> seq_lengths = {};
    bool evaluation = false;          ///< only E, F and S, in the order of training, and the loss
    bool optimizer = true;            ///< false: gradients only
    bool training = true;             ///< false: no memory for gradients and moments either
    TokenRecordOptions records = {};  ///< what every token leaves in OutputLayer::records()
    std::shared_ptr<const TokenLoss> loss = nullptr;  ///< ModelPartition::loss; of training
    bool hidden_sums = false;  ///< ModelPartition::hidden_sums; for evaluations
    /// ModelPartition::frozen. Passes that only frozen parameters need are left out.
    std::vector<bool> frozen = {};
};

/// A step before anything is allocated, equal on every rank: what TrainedRank runs, and simulate().
struct StepPlan {
    ModelConfig model;         ///< as given
    ModelPartition partition;  ///< layers, replicas, threads: how the model is cut
    Schedule schedule;         ///< of one pipeline
    StepSizes sizes;           ///< sizes of its buffers
    TableCosts costs;          ///< used to lower the programs
    PassCosts order_costs;     ///< used to make the order
    Lowered lowered;           ///< the programs of the world
    LowerOptions lowering;     ///< that were used

    /// How the ranks of the world divide into pipelines.
    [[nodiscard]] Mesh mesh() const { return partition.mesh(schedule.ranks); }
    /// Microbatches of every replica.
    [[nodiscard]] int microbatches() const { return schedule.microbatches; }
};

/// The step of a model on a cluster: places stages and vocabulary rows, sizes and prices the
/// passes, orders them, and lowers the order to a program for every rank of the world. Every rank
/// must call it with the same arguments. Throws UsageError for arguments that do not fit together,
/// ScheduleError for passes of your own that cannot run.
[[nodiscard]] StepPlan plan_step(const ModelConfig& model, const StepCluster& cluster,
                                 const StepSchedule& schedule, const StepWork& work);

/// The same step with microbatches of these lengths ([microbatch] as StepWork::seq_lengths), for
/// example of the batch that comes next: the same passes in the same order, and other programs. No
/// rank needs more of an arena than with the longest sequences (LowerOptions::as_longest).
/// Throws UsageError for lengths that the plan's partition does not have.
[[nodiscard]] StepPlan with_lengths(StepPlan plan, std::span<const int64_t> seq_lengths);

/// The part of plan_step() that needs no order: the result has no passes and no programs.
[[nodiscard]] StepPlan place_step(const ModelConfig& model, const StepCluster& cluster,
                                  const StepSchedule& schedule, const StepWork& work);

/// The last part of plan_step(), for a schedule with all passes, stages and shards: sizes and
/// programs. `order_costs` keep their default.
[[nodiscard]] StepPlan plan_step(const ModelConfig& model, const ModelPartition& partition,
                                 Schedule schedule, const TableCosts& costs,
                                 const LowerOptions& options = {});

}  // namespace vocabpipe

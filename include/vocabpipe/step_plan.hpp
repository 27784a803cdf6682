// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/overlap_table.hpp"
#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

/// What a step runs on.
struct StepCluster {
    int ranks = 1;     ///< p, of one pipeline; 1 needs no other
    int replicas = 1;  ///< d, pipelines side by side (Mesh::data); 1 needs no other
    int tensor = 1;    ///< t, ranks that share a stage (Mesh::tensor); 1 needs no other
    int expert =
        1;  ///< e, ranks that share the experts of a layer (Mesh::expert); 1 needs no other
    int threads_per_rank = 1;  ///< ranks x threads beyond the cores is a cliff
    /// Device::operators() of the ranks' devices, which decide how large workspaces are; null: the
    /// host's.
    const kernels::Operators* operators = nullptr;
    /// Device::communication_order() of them; the host's.
    CommunicationOrder communication = CommunicationOrder::lanes;
    /// What passes and messages were measured to take there (profile.hpp). None: from FLOPs, which
    /// needs no measurement.
    std::optional<TableCosts> costs;
    /// What profile --overlap measured there, to choose StepSchedule::pieces by.
    std::optional<OverlapTable> overlap;
};

/// In which order the passes of a step run, and where.
struct StepSchedule {
    std::string name = "1f1b";  ///< a family's; every paper compares with this one
    /// Passes that exist already, as from a file, in place of the family's rule. Not owned.
    const Schedule* passes = nullptr;
    VocabMode vocab_mode = VocabMode::one_barrier;  ///< least memory of the balanced ones
    RuleOptions rule;                               ///< of the family; 0 everywhere: as it is made
    Recompute recompute = Recompute::none;  ///< what R makes again; none: time before memory
    /// Transformer layers of every stage. Empty: layers_per_stage().
    std::vector<int> layers_per_stage;
    /// Of stages of your own, StageModule::bytes() of each. Empty: those of the model's layers.
    std::vector<StageBytes> stage_bytes;
    /// What the order is made for where the cluster has no measured costs. None: PassCosts(), in
    /// which a backward takes two forwards.
    std::optional<PassCosts> costs;
    int receive_ahead = 0;  ///< as in LowerOptions; 0: as early as it pays and memory allows
    Reductions reductions = Reductions::ordered;  ///< the same bits on every transport
    /// LowerOptions::pieces, and those of what tensor ranks and expert ranks exchange. 0: those of
    /// the shortest step under the cluster's measured costs (choose_step_pieces()), and whole
    /// messages where nothing was measured; of what such ranks exchange those of the cluster's
    /// table, and without one whole messages of tensor ranks and the default of ExpertPieces.
    int pieces = 1;
    double moe_row_factor = kMoeRowFactor;  ///< as in ModelPartition
};

/// What a step works on, and what for.
struct StepWork {
    int microbatches = 1;          ///< m, of every replica
    int64_t micro_batch_size = 1;  ///< sequences; 1 takes the least memory
    bool evaluation = false;       ///< E, F and S of the training's order, and the loss
    bool optimizer = true;         ///< false: gradients only
    bool training = true;          ///< false: no memory for gradients and moments either
    bool scores = false;           ///< ModelPartition::scores; for an evaluation
};

/// A step before anything is allocated, equal on every rank: what TrainedRank runs, and simulate().
struct StepPlan {
    ModelConfig model;         ///< as given
    ModelPartition partition;  ///< layers, replicas, threads: how the model is cut
    Schedule schedule;         ///< of one pipeline
    StepSizes sizes;           ///< of its buffers
    TableCosts costs;          ///< that the programs were lowered with
    PassCosts order_costs;     ///< that the order was made for
    Lowered lowered;           ///< the programs of the world
    int receive_ahead = 1;     ///< LowerOptions::receive_ahead that was taken
    int pieces = 1;            ///< LowerOptions::pieces that was taken

    /// How the ranks of the world divide into pipelines.
    [[nodiscard]] Mesh mesh() const { return partition.mesh(schedule.ranks); }
    /// Of every replica.
    [[nodiscard]] int microbatches() const { return schedule.microbatches; }
};

/// The step of a model on a cluster: places stages and vocabulary rows, sizes and prices the
/// passes, orders them, and lowers the order to a program for every rank of the world. Every rank
/// must call it with the same arguments. Throws UsageError for what does not fit together,
/// ScheduleError for passes of one's own that cannot run.
[[nodiscard]] StepPlan plan_step(const ModelConfig& model, const StepCluster& cluster,
                                 const StepSchedule& schedule, const StepWork& work);

/// plan_step() as far as it needs no order: without passes and programs.
[[nodiscard]] StepPlan place_step(const ModelConfig& model, const StepCluster& cluster,
                                  const StepSchedule& schedule, const StepWork& work);

/// The end of plan_step(), for an order whose passes, stages and shards are all there: its sizes
/// and programs. `order_costs` stay the default.
[[nodiscard]] StepPlan plan_step(const ModelConfig& model, const ModelPartition& partition,
                                 Schedule schedule, const TableCosts& costs,
                                 const LowerOptions& options = {});

}  // namespace vocabpipe

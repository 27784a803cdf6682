// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/operators.hpp"
#include "src/train/options/train_options.hpp"
#include "src/train/run/batch_size_schedule.hpp"
#include "src/train/run/rank_placement.hpp"
#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/profile.hpp"
#include "vocabpipe/program.hpp"
#include "vocabpipe/schedule.hpp"
#include "vocabpipe/stage_layout.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

/// One kind of step that a run takes.
struct PlannedStep {
    int microbatches = 0;  ///< per replica
    Schedule schedule;
    std::vector<Program> programs;
};

/// What a run will do, before anything is allocated; the same on every rank. Throws UsageError for
/// flags that do not fit together, InputFileError for a cost file.
class TrainingPlan {
public:
    /// One placement per rank; operators and communication order of the ranks' devices. Both
    /// operators and options must outlive the plan.
    TrainingPlan(const TrainOptions& options, std::vector<RankPlacement> placements,
                 const kernels::Operators& operators = kernels::host::operators(),
                 CommunicationOrder communication = CommunicationOrder::lanes);

    [[nodiscard]] const RankPlacement& placement(int rank) const {
        return placements_[static_cast<size_t>(rank)];
    }
    /// Of the world.
    [[nodiscard]] int ranks() const { return static_cast<int>(placements_.size()); }
    [[nodiscard]] const Mesh& mesh() const { return mesh_; }
    [[nodiscard]] int microbatches() const { return batch_sizes_.full(); }  ///< of a replica
    [[nodiscard]] const BatchSizeSchedule& batch_sizes() const { return batch_sizes_; }
    [[nodiscard]] int threads() const { return threads_; }  ///< per rank
    /// By the executor's slots: training with the full batch, with the smaller ones of a warm-up,
    /// then evaluation if there is any; with --skip-train evaluation alone.
    [[nodiscard]] const std::vector<PlannedStep>& steps() const { return steps_; }
    /// Of a training step with that many microbatches.
    [[nodiscard]] size_t slot_of(int microbatches) const;
    /// The last one, of a run that evaluates.
    [[nodiscard]] size_t evaluation_slot() const { return steps_.size() - 1; }
    /// Of the full batch (of the evaluation where nothing is trained), as programs().
    [[nodiscard]] const Schedule& schedule() const { return steps_.front().schedule; }
    [[nodiscard]] const ModelPartition& partition() const { return partition_; }
    [[nodiscard]] const StepSizes& sizes() const { return sizes_; }
    /// What the programs were lowered with.
    [[nodiscard]] const TableCosts& costs() const { return costs_; }
    [[nodiscard]] const std::vector<Program>& programs() const { return steps_.front().programs; }
    [[nodiscard]] int64_t boundary_bytes() const;

    /// Makes schedule and programs again for measured costs, which must be the same on every rank.
    /// Returns them as the generators see them.
    PassCosts rebuild(const TableCosts& measured);

    [[nodiscard]] PersistentBytes persistent(int rank) const;
    /// Of host memory, for the copy of --async-save; 0 without.
    [[nodiscard]] int64_t snapshot_bytes(int rank) const;
    /// Of the memory that the rank computes in.
    [[nodiscard]] int64_t planned_bytes(int rank) const;
    /// Ranks are threads that compute on the host.
    [[nodiscard]] bool one_process() const;
    /// What kernels take in the rank's process besides (kHostKernelBytes), once per process.
    [[nodiscard]] int64_t kernel_bytes(int rank) const;
    /// What the rank's process, or the rank on its GPU, will have taken at its peak: what is
    /// planned, what it had before, what kernels take. With one_process() of all ranks.
    [[nodiscard]] int64_t predicted_bytes(int rank) const;
    /// All ranks on the device of `rank` (on the host: of its host) together must fit into what is
    /// free there now; OutOfMemoryError otherwise.
    void check_memory(int rank) const;

    /// The plan as a table, a line per rank.
    void print() const;

    [[nodiscard]] Profile profile(const TableCosts& costs, std::vector<Op> derived,
                                  std::vector<LinkSample> links) const;

private:
    /// Of a pipeline without replicas: what profiles are about.
    [[nodiscard]] PersistentBytes persistent_alone(int pipeline_rank) const;
    void read_layout();
    void read_file();
    [[nodiscard]] Schedule schedule_for(const PassCosts& costs, int64_t broadcast_margin,
                                        int microbatches) const;
    /// Of the passes other than R, unless the file has its own.
    [[nodiscard]] Schedule make_order(const PassCosts& costs, int64_t broadcast_margin,
                                      int microbatches) const;
    /// All schedules, then all programs.
    void make_schedules(const PassCosts& costs, int64_t broadcast_margin);
    void lower_all();
    [[nodiscard]] bool recomputes_by_itself() const;  ///< R in the file
    [[nodiscard]] int chunks() const;
    void check_layers() const;
    [[nodiscard]] std::vector<int> layers_of_stages() const;
    void check_snapshots(int of_rank) const;
    [[nodiscard]] TableCosts costs_of_file() const;

    const TrainOptions& options_;
    std::vector<RankPlacement> placements_;
    Mesh mesh_;
    BatchSizeSchedule batch_sizes_;
    int threads_ = 1;
    std::optional<StageLayout> layout_;
    std::optional<Schedule> file_;           ///< what --schedule FILE says
    std::vector<std::string> notes_;         ///< about the file
    Recompute recompute_ = Recompute::none;  ///< what R makes again
    std::vector<PlannedStep> steps_;
    ModelPartition partition_;
    StepSizes sizes_;
    CommunicationOrder communication_;  ///< of this run's devices, whatever was measured elsewhere
    TableCosts costs_;
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/operators.hpp"
#include "src/train/options/train_options.hpp"
#include "src/train/run/batch_size_schedule.hpp"
#include "src/train/run/rank_placement.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/stage_layout.hpp"
#include "vocabpipe/step_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

/// The steps that a run will take, before anything is allocated; the same on every rank. Throws
/// UsageError for flags that do not fit together, InputFileError for a cost file.
class TrainingPlan {
public:
    /// One placement per rank; operators and communication order of the ranks' devices. Both
    /// operators and options must outlive the plan.
    TrainingPlan(const TrainOptions& options, std::vector<RankPlacement> placements,
                 const kernels::Operators& operators = kernels::host::operators(),
                 CommunicationOrder communication = CommunicationOrder::lanes);

    [[nodiscard]] const TrainOptions& options() const { return options_; }
    [[nodiscard]] const RankPlacement& placement(int rank) const {
        return placements_[static_cast<size_t>(rank)];
    }
    /// Of the world.
    [[nodiscard]] int ranks() const { return static_cast<int>(placements_.size()); }
    [[nodiscard]] const Mesh& mesh() const { return mesh_; }
    [[nodiscard]] int microbatches() const { return batch_sizes_.full(); }  ///< of a replica
    [[nodiscard]] const BatchSizeSchedule& batch_sizes() const { return batch_sizes_; }
    [[nodiscard]] int threads() const { return cluster_.threads_per_rank; }  ///< per rank
    /// Ranks are threads that compute on the host.
    [[nodiscard]] bool one_process() const;
    /// Of the first rank that computes on a host and has more threads on its cores, with those of
    /// the ranks that share them, than there are cores; null: none has.
    [[nodiscard]] const RankPlacement* shared_cores() const;
    /// What R makes again.
    [[nodiscard]] Recompute recompute() const { return recompute_; }
    /// What is to be said of a schedule file.
    [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

    /// Training with the full batch, with the smaller ones of a warm-up, then evaluation if there
    /// is any; with --skip-train evaluation alone. TrainedRank numbers them alike.
    [[nodiscard]] const std::vector<StepPlan>& steps() const { return steps_; }
    /// In steps(), of the training step with that many microbatches.
    [[nodiscard]] size_t index_of(int microbatches) const;
    /// The last one, of a run that evaluates.
    [[nodiscard]] size_t evaluation_index() const { return steps_.size() - 1; }
    // Of the full batch, or of the evaluation where nothing is trained.
    [[nodiscard]] const Schedule& schedule() const { return steps_.front().schedule; }
    [[nodiscard]] const ModelPartition& partition() const { return steps_.front().partition; }
    [[nodiscard]] const StepSizes& sizes() const { return steps_.front().sizes; }
    [[nodiscard]] const TableCosts& costs() const { return steps_.front().costs; }
    [[nodiscard]] int64_t boundary_bytes() const;

    /// Makes all steps again for measured costs, which must be the same on every rank. Returns them
    /// as the generators see them.
    const PassCosts& rebuild(const TableCosts& measured);

private:
    void read_layout();
    void read_file();
    [[nodiscard]] int chunks() const;
    void check_layers(const Schedule& placed) const;
    [[nodiscard]] StepSchedule order() const;
    [[nodiscard]] StepWork work(int microbatches) const;
    [[nodiscard]] StepPlan place() const;
    void make_steps();

    const TrainOptions& options_;
    std::vector<RankPlacement> placements_;
    Mesh mesh_;
    BatchSizeSchedule batch_sizes_;
    StepCluster cluster_;
    std::optional<StageLayout> layout_;
    std::optional<Schedule> file_;           ///< what --schedule FILE says
    std::vector<std::string> notes_;         ///< about the file
    Recompute recompute_ = Recompute::none;  ///< what R makes again
    std::vector<int> layers_;                ///< per stage, where flags say so; else empty
    std::vector<StepPlan> steps_;
};

}  // namespace vocabpipe

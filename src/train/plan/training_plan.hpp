// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/operators.hpp"
#include "src/step/rank_placement.hpp"
#include "src/train/options/batch_size_schedule.hpp"
#include "src/train/options/train_options.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/stage_layout.hpp"
#include "vocabpipe/step_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

/// The plans of all steps that a run can take, before anything is allocated; the same on every
/// rank. UsageError for flags that do not fit together, InputFileError for a cost file.
class TrainingPlan {
public:
    /// One placement per rank; operators and communication order of the ranks' devices.
    /// `shorter_lengths`: of sequences to train on, as in ModelPartition. Operators and options
    /// must outlive the plan.
    TrainingPlan(const TrainOptions& options, std::vector<RankPlacement> placements,
                 const kernels::Operators& operators = kernels::host::operators(),
                 CommunicationOrder communication = CommunicationOrder::lanes,
                 std::vector<int64_t> shorter_lengths = {});

    [[nodiscard]] const TrainOptions& options() const { return options_; }
    [[nodiscard]] const std::vector<RankPlacement>& placements() const { return placements_; }
    [[nodiscard]] const RankPlacement& placement(int rank) const {
        return placements_[static_cast<size_t>(rank)];
    }
    /// Ranks of the world.
    [[nodiscard]] int ranks() const { return static_cast<int>(placements_.size()); }
    [[nodiscard]] const Mesh& mesh() const { return mesh_; }
    [[nodiscard]] int microbatches() const { return batch_sizes_.full(); }  ///< of a replica
    [[nodiscard]] const BatchSizeSchedule& batch_sizes() const { return batch_sizes_; }
    [[nodiscard]] int threads() const { return cluster_.threads_per_rank; }  ///< per rank
    /// Ranks are threads that compute on the host.
    [[nodiscard]] bool one_process() const;
    /// Placement of the first rank on a host whose cores have more threads than there are cores,
    /// counting all ranks that share them; null: none.
    [[nodiscard]] const RankPlacement* shared_cores() const;
    /// What R recomputes.
    [[nodiscard]] Recompute recompute() const { return recompute_; }
    /// Whether microbatches have several lengths.
    [[nodiscard]] bool has_lengths() const { return !shorter_lengths_.empty(); }
    /// Notes on a schedule file.
    [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

    /// Training with the full batch, with the smaller ones of a warm-up, the forward-only steps of
    /// each if the loss compares pairs, what is replayed, then evaluation if there is any; with
    /// --skip-train only evaluation. TrainedRank uses the same indices.
    [[nodiscard]] const std::vector<StepPlan>& steps() const { return steps_; }
    /// Index in steps() of what --replay-steps runs twice, the first microbatches of a step without
    /// the optimizer; in a run that replays.
    [[nodiscard]] size_t replay_index() const { return replay_index_; }
    /// Index in steps() of the training step with `microbatches` microbatches.
    [[nodiscard]] size_t index_of(int microbatches) const;
    /// Index of the forward-only step with as many microbatches as the training step `index`, in a
    /// run whose loss compares pairs.
    [[nodiscard]] size_t forward_index(size_t index) const { return training_steps_ + index; }
    /// Index of the evaluation, the last step, in a run that evaluates.
    [[nodiscard]] size_t evaluation_index() const { return steps_.size() - 1; }
    // These are the full batch's; with --skip-train, the evaluation's.
    [[nodiscard]] const Schedule& schedule() const { return steps_.front().schedule; }
    [[nodiscard]] const ModelPartition& partition() const { return steps_.front().partition; }
    [[nodiscard]] const StepSizes& sizes() const { return steps_.front().sizes; }
    [[nodiscard]] const TableCosts& costs() const { return steps_.front().costs; }
    [[nodiscard]] int64_t boundary_bytes() const;

    /// Rebuilds all steps with measured costs, which must be the same on every rank. Returns the
    /// costs as the generators see them.
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
    /// The forward passes of a training step.
    [[nodiscard]] StepPlan forward_of(const StepPlan& training) const;
    [[nodiscard]] int replayed_microbatches() const;

    const TrainOptions& options_;
    std::vector<RankPlacement> placements_;
    Mesh mesh_;
    BatchSizeSchedule batch_sizes_;
    StepCluster cluster_;
    std::vector<int64_t> shorter_lengths_;
    std::optional<StageLayout> layout_;
    std::optional<Schedule> file_;           ///< read from --schedule FILE
    std::vector<std::string> notes_;         ///< about the file
    Recompute recompute_ = Recompute::none;  ///< what R recomputes
    std::vector<int> layers_;                ///< per stage, where flags say so; else empty
    std::optional<PassCosts> first_costs_;   ///< with --schedule-costs auto, until it measured
    std::vector<StepPlan> steps_;
    size_t training_steps_ = 0;  ///< with the optimizer
    size_t replay_index_ = 0;
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/plan/training_plan.hpp"
#include "vocabpipe/sample_source.hpp"
#include "vocabpipe/step_batch.hpp"
#include "vocabpipe/trained_rank.hpp"
#include "vocabpipe/world.hpp"

#include <memory>
#include <optional>

namespace vocabpipe {

/// What a run reads, whatever its mesh.
struct RunInputs {
    const SampleSource& samples;
    ArrangeSamples arrange = {};             ///< of the mesh, as in StepBatchOptions
    int64_t per_microbatch = 1;              ///< samples of a microbatch of all its replicas
    TrainingPosition start = {};             ///< before the first step
    const Checkpoint* checkpoint = nullptr;  ///< initial weights and moments; null: from the seed
};

/// Puts the initial values of a run into a rank that allocate_rank() made.
void set_initial_values(TrainedRank& rank, const TrainOptions& options, const RunInputs& inputs);

/// The run of a mesh on its first ranks alone: the same model, samples and optimizer on one rank,
/// or in a 1F1B pipeline of whole layers, which has the bits of one rank (docs/numerics.md). It
/// writes and evaluates nothing.
class ReferenceRun {
public:
    /// The plan alone, on any rank of the mesh. `mesh` must outlive it. UsageError for options that
    /// so many ranks cannot have.
    ReferenceRun(const TrainingPlan& mesh, const Device& device, int ranks);
    ReferenceRun(const ReferenceRun&) = delete;  // plan_ refers to options_
    ReferenceRun& operator=(const ReferenceRun&) = delete;

    [[nodiscard]] const TrainingPlan& plan() const { return plan_; }
    /// Allocates this rank on `device`; on the first ranks of `world`, the mesh. All arguments must
    /// outlive it. Throws OutOfMemoryError, InputFileError. Collective over these ranks.
    void allocate(Communicator& world, Device& device, const RunInputs& inputs);
    /// Takes the next step; after allocate(). Collective over these ranks.
    StepResult take_step(double learning_rate);
    /// After allocate().
    [[nodiscard]] TrainedRank& trained() { return *trained_; }

private:
    TrainOptions options_;
    TrainingPlan plan_;
    std::optional<Communicator> communicator_;
    std::unique_ptr<TrainedRank> trained_;
    std::unique_ptr<StepBatch> batch_;
};

}  // namespace vocabpipe

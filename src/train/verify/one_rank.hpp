// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/plan/training_plan.hpp"
#include "vocabpipe/sample_source.hpp"
#include "vocabpipe/step_batch.hpp"
#include "vocabpipe/trained_rank.hpp"
#include "vocabpipe/world.hpp"

#include <memory>

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

/// The run of a mesh on one rank: the same model, samples and optimizer in a world of its own
/// within one rank of the mesh, without pipeline and shards. It writes and evaluates nothing.
class OneRank {
public:
    /// The plan alone. `mesh` must outlive it. UsageError for options that one rank cannot have.
    OneRank(const TrainingPlan& mesh, const Device& device);
    OneRank(const OneRank&) = delete;  // plan_ refers to options_
    OneRank& operator=(const OneRank&) = delete;

    [[nodiscard]] const TrainingPlan& plan() const { return plan_; }
    /// Allocates the rank on `device`, which must outlive it, as the inputs must. Throws
    /// OutOfMemoryError, InputFileError.
    void allocate(Device& device, const RunInputs& inputs);
    /// Takes the next step; after allocate().
    StepResult take_step(double learning_rate);
    /// After allocate().
    [[nodiscard]] TrainedRank& trained() { return *trained_; }

private:
    TrainOptions options_;
    TrainingPlan plan_;
    Communicator communicator_;
    std::unique_ptr<TrainedRank> trained_;
    std::unique_ptr<StepBatch> batch_;
};

}  // namespace vocabpipe

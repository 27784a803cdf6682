// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/executor.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/optimizer_step.hpp"
#include "vocabpipe/step_batch.hpp"
#include "vocabpipe/step_plan.hpp"
#include "vocabpipe/world.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace vocabpipe {

/// Where a training is, beside its weights and moments.
struct TrainingPosition {
    int64_t step = 0;              ///< the last one that was taken
    int64_t consumed_samples = 0;  ///< sequences, from which the data go on
    uint64_t seed = 0;             ///< which orders them
};

/// How a TrainedRank begins.
struct TrainedRankOptions {
    OptimizerOptions optimizer = {};  ///< unless the plan has none
    uint64_t seed = 1234;             ///< of the weights; Megatron's default
    bool initialise = true;  ///< false: weights are 0 until they are loaded, which saves the time
    bool poison_dead_buffers = false;    ///< as in ExecutorOptions (tests)
    std::function<bool()> abandon = {};  ///< as in ExecutorOptions; the position stays where it was
    /// Puts layers of your own into the model (replace_output(), replace_stage()). Empty: the model
    /// as it is.
    std::function<void(ModelRank&)> change_model = {};
};

/// What TrainedRank::train_step() is told besides the batch.
struct TrainStepOptions {
    size_t plan = 0;          ///< of the plans that the rank holds, the one to run
    double stop_request = 0;  ///< as in StepStart; nobody asks to stop
};

/// One rank of a training: its part of the model, the optimizer, and the executor that runs plans
/// over both.
///
///     TrainedRank rank(world, device, plan);
///     batch.load(rank.position().consumed_samples, plan.microbatches());
///     rank.train_step(batch, 1e-3);
///     rank.report().loss
class TrainedRank {
public:
    /// Allocates everything, sets the weights and loads the plan's programs. Communicator and
    /// device must outlive it. Collective; what fails on one rank throws AgreedError on all.
    TrainedRank(Communicator& communicator, Device& device, const StepPlan& plan,
                const TrainedRankOptions& options = {});
    /// The same for several plans of the same model and partition: training with other numbers of
    /// microbatches, evaluation. They run one at a time, and share one arena.
    TrainedRank(Communicator& communicator, Device& device, std::span<const StepPlan> plans,
                const TrainedRankOptions& options = {});
    /// Takes other programs, plan by plan, in place of those that it has. Between steps.
    /// Collective.
    void load(std::span<const StepPlan> plans);

    /// Runs a step and updates the weights, then moves position() on by the batch. Throws as
    /// Executor::run_step(); UsageError where the plan has no optimizer.
    void train_step(const StepBatch& batch, double learning_rate,
                    const TrainStepOptions& options = {});
    /// The same without a StepBatch: microbatches of this replica, counted labels of all replicas.
    /// The position moves on by their sequences.
    void train_step(std::span<const Microbatch> microbatches, int64_t counted_tokens,
                    double learning_rate, const TrainStepOptions& options = {});
    /// Runs a plan without optimizer: gradients stay in parameters(), or losses in output().
    void run(std::span<const Microbatch> microbatches, size_t plan = 0);

    /// What the last train_step() came to; waits for the device. UsageError as train_step().
    [[nodiscard]] StepResult report() const;
    /// All parameters of this rank: weights, gradients and moments.
    [[nodiscard]] std::span<Parameter> parameters() { return model_->parameters(); }
    /// Where the training is.
    [[nodiscard]] const TrainingPosition& position() const { return position_; }
    /// Of what was loaded.
    void set_position(const TrainingPosition& position) { position_ = position; }
    /// Of the last step of a plan, all ranks'. Collective.
    [[nodiscard]] Timeline gather_timeline(size_t plan = 0) {
        return executor_->gather_timeline(plan);
    }

    // Its parts.
    [[nodiscard]] Communicator& communicator() { return communicator_; }  ///< as given
    [[nodiscard]] Device& device() { return model_->device(); }           ///< as given
    [[nodiscard]] ModelRank& model() { return *model_; }                  ///< this rank's part
    [[nodiscard]] OutputLayer* output() { return model_->output(); }      ///< null without its rows
    [[nodiscard]] Executor& executor() { return *executor_; }             ///< runs the plans
    /// For what is to run on the device between steps.
    [[nodiscard]] Context& context() { return executor_->context(); }

private:
    [[nodiscard]] OptimizerStep& optimizer() const;

    Communicator& communicator_;
    int replicas_;
    std::unique_ptr<ModelRank> model_;
    std::unique_ptr<OptimizerStep> optimizer_;  ///< null: gradients or evaluation only
    std::unique_ptr<Executor> executor_;
    TrainingPosition position_;
};

}  // namespace vocabpipe

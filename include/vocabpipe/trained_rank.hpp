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
#include <string>
#include <vector>

namespace vocabpipe {

class LengthPrograms;

/// The position of a training, which together with weights and moments is its state.
struct TrainingPosition {
    int64_t step = 0;              ///< last step done
    int64_t consumed_samples = 0;  ///< sequences read; the data continue from here
    uint64_t seed = 0;             ///< orders the samples
};

/// Options of a TrainedRank.
struct TrainedRankOptions {
    OptimizerOptions optimizer = {};   ///< unless the plan has none
    uint64_t seed = 1234;              ///< of the weights; Megatron's default
    bool initialise = true;            ///< false: weights are 0 until loaded, which saves time
    bool poison_dead_buffers = false;  ///< as in ExecutorOptions (tests)
    /// Programs that are kept for orders of lengths, where microbatches have several
    /// (ModelPartition::shorter_lengths): a run has few of them, and a program is small next to a
    /// microbatch.
    size_t length_programs = 16;
    std::function<bool()> abandon = {};  ///< as in ExecutorOptions; position() does not change
    /// Puts your own layers into the model (replace_output(), replace_stage()). Empty: no change.
    std::function<void(ModelRank&)> change_model = {};
};

/// Options of TrainedRank::train_step().
struct TrainStepOptions {
    size_t plan = 0;          ///< index of the plan to run
    double stop_request = 0;  ///< as in StepStart; default: none
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
    /// device must outlive it. Collective; a failure on one rank throws AgreedError on all.
    TrainedRank(Communicator& communicator, Device& device, const StepPlan& plan,
                const TrainedRankOptions& options = {});
    /// The same for several plans of the same model and partition: training with other numbers of
    /// microbatches, evaluation. They run one at a time, and share one arena.
    TrainedRank(Communicator& communicator, Device& device, std::span<const StepPlan> plans,
                const TrainedRankOptions& options = {});
    ~TrainedRank();
    /// Replaces its programs, plan by plan. Between steps. Collective.
    void load(std::span<const StepPlan> plans);

    /// Runs a step and updates the weights, then advances position() by the batch. Where the plan
    /// has ModelPartition::shorter_lengths, the microbatches may have any of them, in the same
    /// order on every rank: an order that is new gets a program of its own (with_lengths()), which
    /// is collective. Throws as Executor::run_step(), and UsageError if the plan has no optimizer.
    void train_step(const StepBatch& batch, double learning_rate,
                    const TrainStepOptions& options = {});
    /// The same without a StepBatch: microbatches of this replica, counted labels of all replicas.
    /// position() advances by the sequences of all replicas. With context ranks, throws UsageError
    /// for a microbatch without Microbatch::loss_weight.
    void train_step(std::span<const Microbatch> microbatches, int64_t counted_tokens,
                    double learning_rate, const TrainStepOptions& options = {});
    /// Runs a plan without optimizer: gradients stay in parameters(), or losses in output().
    void run(std::span<const Microbatch> microbatches, size_t plan = 0);
    /// A record of the tokens of the last step's microbatches, one microbatch after the other, each
    /// (N) or, of the k likeliest tokens, (2 k, N), with its own N tokens: those that this rank
    /// gave, on every rank of its pipeline. Collective. UsageError unless StepWork::records asks
    /// for it.
    [[nodiscard]] std::vector<float> records(TokenRecord record);

    /// A result of the model (ModelGraph::result()) for the sequences of the last step's or run()'s
    /// microbatches, one after the other, each (rows, columns), on every rank of its pipeline.
    /// Collective. UsageError for a name that the model does not have.
    [[nodiscard]] std::vector<float> results(const std::string& name);

    /// Id in executor() of the program of the last step or run().
    [[nodiscard]] ProgramId program() const { return program_; }
    /// Result of the last train_step(); waits for the device. Throws UsageError as train_step().
    [[nodiscard]] StepResult report() const;
    /// All parameters of this rank: weights, gradients and moments.
    [[nodiscard]] std::span<Parameter> parameters() { return model_->parameters(); }
    /// The position of the training.
    [[nodiscard]] const TrainingPosition& position() const { return position_; }
    /// Sets the position, after loading a checkpoint.
    void set_position(const TrainingPosition& position) { position_ = position; }
    /// Timeline of all ranks of the last step of a plan; of several lengths, of a program().
    /// Collective.
    [[nodiscard]] Timeline gather_timeline(ProgramId program = 0) {
        return executor_->gather_timeline(program);
    }

    // Its components.
    [[nodiscard]] Communicator& communicator() { return communicator_; }  ///< as given
    [[nodiscard]] Device& device() { return model_->device(); }           ///< as given
    [[nodiscard]] ModelRank& model() { return *model_; }                  ///< this rank's part
    [[nodiscard]] OutputLayer* output() { return model_->output(); }      ///< null without its rows
    [[nodiscard]] Executor& executor() { return *executor_; }             ///< runs the plans
    /// Context for work on the device between steps.
    [[nodiscard]] Context& context() { return executor_->context(); }

private:
    [[nodiscard]] OptimizerStep& optimizer() const;
    void run_step(std::span<const Microbatch> microbatches, size_t plan);

    Communicator& communicator_;
    Mesh mesh_;
    TokenRecords stored_;                       ///< StepWork::records; empty: none
    std::vector<size_t> tokens_of_microbatch_;  ///< of the last step
    std::unique_ptr<ModelRank> model_;
    std::unique_ptr<OptimizerStep> optimizer_;  ///< null: gradients or evaluation only
    std::unique_ptr<Executor> executor_;
    size_t most_length_programs_;
    std::unique_ptr<LengthPrograms> length_programs_;  ///< null: all sequences are equally long
    ProgramId program_ = 0;
    TrainingPosition position_;
};

}  // namespace vocabpipe

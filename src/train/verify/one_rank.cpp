// SPDX-License-Identifier: Apache-2.0
#include "src/train/verify/one_rank.hpp"

#include "src/runtime/transport/threads/transport.hpp"
#include "src/train/options/train_options.hpp"
#include "src/train/plan/run_rank.hpp"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// Everything that decides the samples and the numbers stays; how ranks divide the work, and what a
/// run writes, goes.
TrainOptions without_mesh(TrainOptions options) {
    const TrainOptions defaults;
    options.pipeline_model_parallel_size = 1;
    options.context_parallel_size = 1;
    options.tensor_model_parallel_size = 1;
    options.expert_model_parallel_size = 1;
    options.expert_tensor_parallel_size = 1;
    options.schedule = defaults.schedule;
    options.layout.clear();
    options.end_layers = {};
    options.rule = {};
    options.layers_per_chunk = 0;
    options.vocab_mode = VocabMode::none;
    options.schedule_costs = defaults.schedule_costs;
    options.cost_file.clear();
    options.overlap_table.clear();
    options.blocking_exchanges = false;
    options.reductions = Reductions::ordered;
    options.evaluation.iters = 0;
    options.evaluation.multiple_choice_path.clear();
    options.async_save = false;
    options.profile.clear();
    return options;
}

RankPlacement alone(RankPlacement placement) {
    placement.ranks = 1;
    return placement;
}

}  // namespace

void set_initial_values(TrainedRank& rank, const TrainOptions& options, const RunInputs& inputs) {
    rank.set_position(inputs.start);
    if (inputs.checkpoint == nullptr) return;
    rank.model().initialise_adapters(rank.context(), options.seed);
    inputs.checkpoint->fill(rank.model(), rank.context());
}

OneRank::OneRank(const TrainingPlan& mesh, const Device& device)
    : options_(without_mesh(mesh.options())),
      plan_(options_, {alone(mesh.placement(0))}, device.operators(), device.communication_order(),
            mesh.partition().shorter_lengths),
      communicator_(threads::make_transport(threads::make_hub(1), 0), WaitOptions{}) {}

void OneRank::allocate(Device& device, const RunInputs& inputs) {
    trained_ = allocate_rank(communicator_, options_, plan_, device);
    set_initial_values(*trained_, options_, inputs);
    StepBatchOptions batch{.micro_batch_size = options_.micro_batch_size,
                           .later = later_tokens(options_.model)};
    if (inputs.arrange) {
        // The samples of a microbatch on all replicas of the mesh have one length, so these are as
        // many microbatches here.
        batch.arrange = [arrange = inputs.arrange, per_microbatch = inputs.per_microbatch](
                            std::span<const int64_t> lengths, int64_t) {
            return arrange(lengths, per_microbatch);
        };
    }
    batch_ = std::make_unique<StepBatch>(inputs.samples, batch);
}

StepResult OneRank::take_step(double learning_rate) {
    const int64_t consumed = trained_->position().consumed_samples;
    const int microbatches = plan_.batch_sizes().microbatches(consumed);
    batch_->load(consumed, microbatches);
    trained_->train_step(*batch_, learning_rate, {.plan = plan_.index_of(microbatches)});
    return trained_->report();
}

}  // namespace vocabpipe

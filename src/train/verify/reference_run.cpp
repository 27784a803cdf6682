// SPDX-License-Identifier: Apache-2.0
#include "src/train/verify/reference_run.hpp"

#include "src/runtime/transport/first_ranks.hpp"
#include "src/runtime/transport/threads/transport.hpp"
#include "src/train/options/train_options.hpp"
#include "src/train/plan/planned_step.hpp"
#include "src/train/plan/run_rank.hpp"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// Everything that decides the samples and the numbers stays; how ranks divide the work, and what a
/// run writes, goes.
TrainOptions on_pipeline(TrainOptions options, int ranks) {
    const TrainOptions defaults;
    options.pipeline_model_parallel_size = ranks;
    options.context_parallel_size = 1;
    options.tensor_model_parallel_size = 1;
    options.expert_model_parallel_size = 1;
    options.expert_tensor_parallel_size = 1;
    options.zero = {};
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

std::vector<RankPlacement> first_placements(const TrainingPlan& mesh, int ranks) {
    std::vector<RankPlacement> placements;
    for (int rank = 0; rank < ranks; ++rank) {
        placements.push_back(mesh.placement(rank));
        placements.back().ranks = ranks;
    }
    return placements;
}

}  // namespace

void set_initial_values(TrainedRank& rank, const TrainOptions& options, const RunInputs& inputs) {
    rank.set_position(inputs.start);
    if (inputs.checkpoint == nullptr) return;
    rank.model().initialise_adapters(rank.context(), options.seed);
    inputs.checkpoint->fill(rank.model(), rank.context());
}

ReferenceRun::ReferenceRun(const TrainingPlan& mesh, const Device& device, int ranks)
    : options_(on_pipeline(mesh.options(), ranks)),
      plan_(options_, first_placements(mesh, ranks), device.operators(),
            device.communication_order(), mesh.partition().shorter_lengths) {}

void ReferenceRun::allocate(Communicator& world, Device& device, const RunInputs& inputs) {
    if (plan_.ranks() == 1) {
        communicator_.emplace(threads::make_transport(threads::make_hub(1), 0), WaitOptions{});
    } else {
        communicator_.emplace(std::make_unique<FirstRanks>(world.transport(), plan_.ranks()),
                              world.wait_options());
    }
    trained_ = allocate_rank(*communicator_, options_, plan_, device);
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

StepResult ReferenceRun::take_step(double learning_rate) {
    const int64_t consumed = trained_->position().consumed_samples;
    const int microbatches = plan_.batch_sizes().microbatches(consumed);
    batch_->load(consumed, microbatches);
    PlannedStep step(*trained_, plan_);
    step.begin(*batch_, plan_.index_of(microbatches));
    step.train(learning_rate);
    return step.report();
}

}  // namespace vocabpipe

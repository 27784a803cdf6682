// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/train/evaluate/sequence_losses.hpp"
#include "tests/support/pipeline_run.hpp"
#include "tests/support/schedule_cases.hpp"

#include <mutex>
#include <string>

namespace vocabpipe::testing {

/// How a model is spread over ranks to be evaluated.
struct EvaluationSetup {
    ModelConfig config;
    std::string family = "1f1b";
    VocabMode mode = VocabMode::none;
    int ranks = 1;
    int microbatches = 3;
    int64_t micro_batch_size = 2;
    uint64_t seed = 7;                          ///< of the weights
    int data = 1;                               ///< replicas
    int tensor = 1;                             ///< ranks that share a stage
    int context = 1;                            ///< ranks that share sequences
    ContextForm form = ContextForm::allgather;  ///< of their exchange
    SampleForm samples = {};                    ///< of the sequences
};

/// Calls `body` with the losses of every rank of a world of threads, and returns what rank 0 made
/// of them; the evaluation's order is what is left of the training's.
template <typename Body>
auto evaluate_on_threads(const EvaluationSetup& setup, const Body& body) {
    const Schedule schedule =
        evaluation_schedule(make_schedule(setup.family, {.ranks = setup.ranks,
                                                         .microbatches = setup.microbatches,
                                                         .vocab_mode = setup.mode,
                                                         .vocab_size = setup.config.vocab_size}));
    ModelPartition partition = even_partition(setup.config, schedule, setup.micro_batch_size);
    partition.training = false;
    partition.replicas = setup.data;
    partition.tensor = setup.tensor;
    partition.context = setup.context;
    partition.context_exchange.form = setup.form;
    const Mesh mesh = partition.mesh(setup.ranks);
    TableCosts costs = TableCosts::uniform(schedule.ranks, schedule.stages, 1000, 2000, 500);
    costs.slices = mesh.slices();
    // The second of the rank's plans, as in a run that trains.
    const std::vector<StepPlan> plans(2, plan_step(setup.config, partition, schedule, costs));
    std::invoke_result_t<Body, SequenceLosses&> result{};
    std::mutex mutex;
    World::threads(mesh.size(), {.timeout_seconds = 30}).run([&](Communicator& communicator) {
        const std::unique_ptr<Device> device = make_host_device();
        TrainedRank rank(communicator, *device, plans,
                         {.seed = setup.seed, .poison_dead_buffers = true});
        SequenceLosses losses(rank, 1,
                              {.micro_batch_size = setup.micro_batch_size,
                               .seq_length = setup.config.seq_length,
                               .microbatches = setup.microbatches,
                               .mesh = mesh,
                               .loss_rank = schedule.output.owners().front(),
                               .form = setup.samples});
        auto found = body(losses);
        const std::lock_guard lock(mutex);
        if (communicator.rank() == 0) result = std::move(found);
    });
    return result;
}

}  // namespace vocabpipe::testing

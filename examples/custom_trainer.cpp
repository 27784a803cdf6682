// SPDX-License-Identifier: Apache-2.0
// A trainer of your own: a small GPT on the bytes of any file, one process per pipeline rank.
//
//   mpirun -np 2 custom_trainer README.md 30
//   mpirun -np 2 custom_trainer README.md 30 steps    goes on from the folder, and saves into it
#include <cstdio>
#include <cstdlib>

#include "vocabpipe/checkpoint.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/flop_costs.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/optimizer_step.hpp"
#include "vocabpipe/step_batch.hpp"
#include "vocabpipe/token_dataset.hpp"

using namespace vocabpipe;

void train(Communicator& world, const char* text, int steps, const char* folder) {
    const int microbatches = 8;
    const ModelConfig model{.num_layers = 4, .vocab_size = 256};  // tokens are bytes

    // What every rank runs, in which order; then all communication and memory, proved safe.
    const Schedule schedule = make_schedule("1f1b", {.ranks = world.size(),
                                                     .microbatches = microbatches,
                                                     .vocab_mode = VocabMode::one_barrier,
                                                     .vocab_size = model.vocab_size});
    const ModelPartition partition{
        .layers_per_stage =
            layers_per_stage(model.num_layers, schedule.stages, VocabMode::one_barrier, 0),
        .micro_batch_size = 2};
    const StepSizes sizes = step_sizes(model, partition, schedule);
    const auto programs = lower(schedule, sizes, flop_costs(model, partition, schedule));

    // This rank's layers, its shard of the vocabulary, and its optimizer.
    const auto device = make_host_device();
    ModelRank rank(model, partition, schedule, world.rank(), *device);
    OptimizerStep optimizer(rank, schedule, world.rank(), {});
    Executor executor(world, *device, rank.modules(&optimizer), sizes);
    executor.load(programs);
    rank.initialise(executor.context(), 1234);

    const TokenDataset data(open_tokens(text, DataFormat::raw_u8),
                            {.seq_length = model.seq_length});
    StepBatch batch(data, {.micro_batch_size = partition.micro_batch_size});
    TrainingPosition at;
    if (folder != nullptr) at = load_step(world, rank, executor.context(), folder).value_or(at);
    if (at.step >= steps) return;
    while (at.step < steps) {
        batch.load(at.consumed_samples, microbatches);
        optimizer.begin_step(++at.step, 1e-3F, batch.counted_tokens(), false);
        executor.run_step(batch.microbatches());
        at.consumed_samples += batch.global_batch_size();
        if (world.rank() == 0)
            std::printf("step %3d   loss %.4f\n", int(at.step), optimizer.result().loss);
    }
    if (folder != nullptr) save_step(world, rank, folder, at);
    const Timeline timeline = executor.gather_timeline();
    if (world.rank() != 0) return;
    write_chrome_trace("timeline.json", timeline, programs, "last step");
    std::printf("timeline.json shows the last step in https://ui.perfetto.dev\n");
}

int main(int argc, char** argv) {
    World world = World::mpi();
    const char* text = argc > 1 ? argv[1] : argv[0];
    try {
        world.run([&](Communicator& c) {
            train(c, text, argc > 2 ? std::atoi(argv[2]) : 30, argc > 3 ? argv[3] : nullptr);
        });
    } catch (const Error& error) {
        std::fprintf(stderr, "custom_trainer: error: %s\n", error.what());
        world.abort(static_cast<int>(error.exit_code()));
    }
}

// SPDX-License-Identifier: Apache-2.0
// A custom trainer: a small GPT on the bytes of any file, one process per pipeline rank.
//
//   mpirun -np 2 custom_trainer README.md 30
#include <cstdio>
#include <cstdlib>

#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/token_dataset.hpp"
#include "vocabpipe/trained_rank.hpp"

using namespace vocabpipe;

int main(int argc, char** argv) {
    const char* text = argc > 1 ? argv[1] : argv[0];
    const int steps = argc > 2 ? std::atoi(argv[2]) : 30;
    return World::mpi().run_program("custom_trainer", [&](Communicator& world) {
        const ModelConfig model{.num_layers = 4, .vocab_size = 256};  // tokens are bytes
        // What every rank runs and in which order, with communication and memory, proved free of
        // deadlock.
        const StepPlan plan = plan_step(model, {.ranks = world.size()}, {.name = "1f1b"},
                                        {.microbatches = 8, .micro_batch_size = 2});
        // This rank's layers, its shard of the vocabulary, and its optimizer.
        const auto device = make_host_device();
        TrainedRank rank(world, *device, plan);
        const TokenDataset data(open_tokens(text, DataFormat::raw_u8),
                                {.seq_length = model.seq_length});
        StepBatch batch(data, {.micro_batch_size = plan.partition.micro_batch_size});
        while (rank.position().step < steps) {
            batch.load(rank.position().consumed_samples, plan.microbatches());
            rank.train_step(batch, 1e-3);
            if (world.rank() != 0) continue;
            std::printf("step %3d   loss %.4f\n", int(rank.position().step), rank.report().loss);
        }
    });
}

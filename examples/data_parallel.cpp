// SPDX-License-Identifier: Apache-2.0
// Data parallelism beside pipeline parallelism: the same model and the same samples on meshes of p
// pipeline ranks x d replicas. Replicas add up their gradients within the step and share the
// optimizer's work and memory (ZeRO stage 1); all meshes come to the same losses.
//
//   data_parallel README.md
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include "vocabpipe/executor.hpp"
#include "vocabpipe/flop_costs.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/optimizer_step.hpp"
#include "vocabpipe/step_batch.hpp"
#include "vocabpipe/token_dataset.hpp"

using namespace vocabpipe;

struct Run {
    std::vector<double> losses;
    uint64_t optimizer_bytes = 0;  ///< of rank 0
};

Run train(const TokenDataset& data, const Mesh& mesh) {
    const int microbatches = 8 / mesh.data;  // of each replica
    const ModelConfig model{.num_layers = 2};
    const Schedule schedule = make_schedule("1f1b", {.ranks = mesh.pipeline,
                                                     .microbatches = microbatches,
                                                     .vocab_mode = VocabMode::one_barrier,
                                                     .vocab_size = model.vocab_size});
    const ModelPartition partition{
        .layers_per_stage =
            layers_per_stage(model.num_layers, schedule.stages, VocabMode::one_barrier, 0),
        .replicas = mesh.data};
    const StepSizes sizes = step_sizes(model, partition, schedule);
    const auto programs = lower(schedule, sizes, flop_costs(model, partition, schedule));

    Run run{.optimizer_bytes = persistent_bytes(model, partition, schedule, 0).optimizer};
    World::threads(mesh.size()).run([&](Communicator& world) {
        const auto device = make_host_device();
        ModelRank rank(model, partition, schedule, world.rank(), *device);
        OptimizerStep optimizer(rank, schedule, world.rank(), {});
        Executor executor(world, *device, rank.modules(&optimizer), sizes);
        executor.load(programs);
        rank.initialise(executor.context(), 1234);
        StepBatch batch(data, {.micro_batch_size = partition.micro_batch_size,
                               .replica = mesh.replica(world.rank()),
                               .replicas = mesh.data});
        for (int step = 1; step <= 8; ++step) {
            batch.load((step - 1) * batch.global_batch_size(), microbatches);
            optimizer.begin_step(step, 1e-3F, batch.counted_tokens(), false);
            executor.run_step(batch.microbatches());
            if (world.rank() == 0) run.losses.push_back(optimizer.result().loss);
        }
    });
    return run;
}

int main(int argc, char** argv) {
    const TokenDataset data(open_tokens(argv[argc - 1], DataFormat::raw_u8),
                            {.seq_length = ModelConfig().seq_length});
    constexpr std::array<Mesh, 4> kMeshes{Mesh{.pipeline = 1, .data = 1},
                                          {.pipeline = 2, .data = 1},
                                          {.pipeline = 1, .data = 2},
                                          {.pipeline = 2, .data = 2}};
    std::vector<double> first;
    double largest_difference = 0;
    std::printf("p x d   loss of the first and the last step   optimizer state of rank 0\n");
    for (const Mesh& mesh : kMeshes) {
        const Run run = train(data, mesh);
        if (first.empty()) first = run.losses;
        for (size_t i = 0; i < first.size(); ++i) {
            largest_difference = std::max(largest_difference, std::abs(run.losses[i] - first[i]));
        }
        std::printf("%d x %d   %.4f %.4f %36.1f KiB\n", mesh.pipeline, mesh.data,
                    run.losses.front(), run.losses.back(),
                    static_cast<double>(run.optimizer_bytes) / 1024);
    }
    std::printf("largest difference %.1e\n", largest_difference);
    return largest_difference < 1e-4 ? 0 : 1;
}

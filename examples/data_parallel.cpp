// SPDX-License-Identifier: Apache-2.0
// Data parallelism on top of pipeline parallelism: the same model and samples on meshes of p
// pipeline ranks x d replicas. Replicas add up their gradients within the step and share the
// optimizer's work and memory (ZeRO stage 1); all meshes give the same losses.
//
//   data_parallel README.md
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include "vocabpipe/mesh.hpp"
#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/token_dataset.hpp"
#include "vocabpipe/trained_rank.hpp"

using namespace vocabpipe;

struct Run {
    std::vector<double> losses;
    uint64_t optimizer_bytes = 0;  ///< of rank 0
};

Run train(const TokenDataset& data, const Mesh& mesh) {
    const int microbatches = 8 / mesh.data;  // of each replica
    const ModelConfig model{.num_layers = 2};
    const StepPlan plan = plan_step(model, {.ranks = mesh.pipeline, .replicas = mesh.data},
                                    {.name = "1f1b"}, {.microbatches = microbatches});

    Run run{.optimizer_bytes = persistent_bytes(model, plan.partition, plan.schedule, 0).optimizer};
    World::threads(mesh.size()).run([&](Communicator& world) {
        const auto device = make_host_device();
        TrainedRank rank(world, *device, plan);
        StepBatch batch(data, {.micro_batch_size = plan.partition.micro_batch_size,
                               .replica = mesh.replica(world.rank()),
                               .replicas = mesh.data});
        while (rank.position().step < 8) {
            batch.load(rank.position().consumed_samples, microbatches);
            rank.train_step(batch, 1e-3);
            if (world.rank() == 0) run.losses.push_back(rank.report().loss);
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

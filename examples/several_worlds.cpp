// SPDX-License-Identifier: Apache-2.0
// Several worlds in one process, at once: pipelines of 1, 2 and 3 ranks train the same model and
// give the same losses. Nothing is global, so worlds do not know of each other.
//
//   several_worlds README.md
#include <array>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/token_dataset.hpp"
#include "vocabpipe/trained_rank.hpp"

using namespace vocabpipe;

constexpr int kSteps = 8;
constexpr int kMicrobatches = 4;

/// Losses of the steps, on `ranks` threads of this process.
std::vector<double> train(const TokenDataset& data, int ranks) {
    const ModelConfig model{.num_layers = 3};
    const StepPlan plan =
        plan_step(model, {.ranks = ranks}, {.name = "1f1b"}, {.microbatches = kMicrobatches});

    std::vector<double> losses;
    World::threads(ranks).run([&](Communicator& world) {
        const auto device = make_host_device();
        TrainedRank rank(world, *device, plan);  // the same weights for any number of ranks
        StepBatch batch(data, {.micro_batch_size = plan.partition.micro_batch_size});
        while (rank.position().step < kSteps) {
            batch.load(rank.position().consumed_samples, kMicrobatches);
            rank.train_step(batch, 1e-3);
            if (world.rank() == 0) losses.push_back(rank.report().loss);
        }
    });
    return losses;
}

int main(int argc, char** argv) {
    // Data sets are safe to share: samples are computed on demand.
    const TokenDataset data(open_tokens(argv[argc - 1], DataFormat::raw_u8),
                            {.seq_length = ModelConfig().seq_length});
    std::array<std::vector<double>, 3> curves;
    std::vector<std::thread> worlds;
    for (size_t i = 0; i < curves.size(); ++i) {
        worlds.emplace_back([&, i] { curves[i] = train(data, static_cast<int>(i) + 1); });
    }
    for (std::thread& world : worlds) world.join();

    double largest_difference = 0;
    std::printf("step    p = 1    p = 2    p = 3\n");
    for (size_t step = 0; step < kSteps; ++step) {
        std::printf("%4zu", step + 1);
        for (const std::vector<double>& curve : curves) {
            std::printf("  %7.4f", curve[step]);
            largest_difference =
                std::max(largest_difference, std::abs(curve[step] - curves.front()[step]));
        }
        std::printf("\n");
    }
    std::printf("largest difference %.1e\n", largest_difference);
    return largest_difference < 1e-4 ? 0 : 1;
}

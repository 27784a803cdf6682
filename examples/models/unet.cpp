// SPDX-License-Identifier: Apache-2.0
// A U-Net (1-D, convolutions of three rows on a ring) that takes the noise off square waves. Its
// skips go from the first stages to the last ones, which "v-half" places on the same ranks.
//   mpirun -np 2 unet 30
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "vocabpipe/model_graph.hpp"
#include "vocabpipe/trained_rank.hpp"

using namespace vocabpipe;

constexpr int64_t kPoints = 64, kLevels = 4;

/// Every row and its two neighbours on the ring, and a GELU.
LayerValue convolution(ModelGraph& g, const char* name, LayerValue x, int64_t columns) {
    const int64_t last = x.rows() - 1;
    const LayerValue before = g.join_rows(g.row_range(x, last, 1), g.row_range(x, 0, last));
    const LayerValue after = g.join_rows(g.row_range(x, 1, last), g.row_range(x, 0, 1));
    const LayerValue y = g.linear(name, g.join_columns({before, x, after}), columns);
    return g.activation(kernels::Activation::gelu_tanh, y);
}

/// On the way down rows become half as many and twice as wide, on the way up the reverse.
void unet(ModelGraph& g) {
    std::vector<LayerValue> skips;
    LayerValue x = g.data_columns(0, 1);
    for (int64_t columns = 16; skips.size() < kLevels; columns *= 2) {
        x = convolution(g, "convolution", convolution(g, "in", x, columns), columns);
        skips.push_back(x);
        x = g.reshape(x, 2 * columns);
        g.pipeline_stage();
    }
    for (; !skips.empty(); skips.pop_back()) {
        const int64_t columns = skips.back().columns();
        if (skips.size() < kLevels) g.pipeline_stage();
        x = g.reshape(convolution(g, "in", x, 2 * columns), columns);
        x = convolution(g, "convolution", g.join_columns({x, skips.back()}), columns);
    }
    g.squared_error(g.linear("out", x, 1), 1);
}

/// Column 0 with noise, column 1 without.
struct SquareWaves final : SampleSource {
    int64_t seq_length() const override { return kPoints; }
    int64_t samples_per_epoch() const override { return 1'000'000; }
    SampleForm form() const override { return {.columns = 2}; }
    void fill(int64_t index, Sample& out) const override {
        std::mt19937 random(static_cast<uint32_t>(index));
        std::normal_distribution<float> noise(0, 0.7F);
        const int64_t waves = random() % 4 + 1, phase = random() % kPoints;
        for (int64_t i = 0; i < kPoints; ++i) {
            out.columns[kPoints + i] = (i + phase) * 2 * waves / kPoints % 2 == 0 ? 1 : -1;
            out.columns[i] = out.columns[kPoints + i] + noise(random);
            out.labels[i] = 0;  // the row counts
        }
    }
};

int main(int argc, char** argv) {
    const int steps = argc > 1 ? std::atoi(argv[1]) : 30;
    return World::mpi().run_program("unet", [&](Communicator& world) {
        const StepPlan plan =
            plan_step(model_of(unet, {.init_std = 0.05F}), {.ranks = world.size()},
                      {.name = "v-half"}, {.microbatches = 8, .micro_batch_size = 4});
        const auto device = make_host_device();
        TrainedRank rank(world, *device, plan);
        const SquareWaves data;
        StepBatch batch(data, {.micro_batch_size = 4});
        for (int step = 1; step <= steps; ++step) {
            batch.load(rank.position().consumed_samples, plan.microbatches());
            rank.train_step(batch, 3e-3);
            if (world.rank() == 0) std::printf("step %3d   loss %.4f\n", step, rank.report().loss);
        }
    });
}

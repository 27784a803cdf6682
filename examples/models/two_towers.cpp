// SPDX-License-Identifier: Apache-2.0
// Contrastive learning, as CLIP does it: two encoders, of the upper and of the lower halves of
// handwritten digits, learn which of 16 halves belong together, by an operator of one's own.
//   mpirun -np 2 two_towers examples/models/digits.txt 60
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "vocabpipe/error.hpp"
#include "vocabpipe/model_graph.hpp"
#include "vocabpipe/operators.hpp"
#include "vocabpipe/trained_rank.hpp"

using namespace vocabpipe;

constexpr int64_t kPairs = 16, kPixels = 32;  // of a microbatch, of half an image

/// y = a b^T: how similar every vector of the microbatch in `a` is to every one in `b`.
const LayerOperator kSimilarities{
    .name = "similarities",
    .columns = kPairs,
    .forward = [](auto& ctx, auto&, auto& in,
                  auto y) { ctx.operators().linear_forward(ctx, in.x[0], in.x[1], {}, y); },
    .backward_input =
        [](auto& ctx, auto&, auto& in, auto dy, auto dx) {
            ctx.operators().linear_backward_input(ctx, dy, in.x[1], dx[0]);
            ctx.operators().linear_backward_weight(ctx, dy, in.x[0], dx[1], {}, false);
        }};

LayerValue tower(ModelGraph& g, LayerValue x) {
    x = g.activation(kernels::Activation::gelu_tanh, g.linear("first", x, 128));
    g.pipeline_stage();
    return g.rms_norm("norm", g.linear("second", x, 32));
}

void two_towers(ModelGraph& g) {
    const LayerValue upper = tower(g, g.data_columns(0, kPixels));
    g.pipeline_stage();
    const LayerValue lower = tower(g, g.data_columns(kPixels, kPixels));
    g.cross_entropy(g.apply(kSimilarities, {upper, lower}));
}

/// Every image is a sequence of one token, whose label is its place in the microbatch.
struct Digits final : SampleSource {
    explicit Digits(const char* file) {
        std::ifstream in(file);
        for (std::string digit, pixels; in >> digit >> pixels;) images.push_back(pixels);
        if (images.empty()) throw InputFileError(std::string(file) + ": has no digits");
    }
    int64_t seq_length() const override { return 1; }
    int64_t samples_per_epoch() const override { return std::ssize(images); }
    SampleForm form() const override { return {.columns = 2 * kPixels}; }
    void fill(int64_t index, Sample& out) const override {
        const std::string& pixels = images[index % images.size()];
        for (size_t i = 0; i < pixels.size(); ++i) out.columns.at(i) = (pixels[i] - 'a') / 16.0F;
        out.labels[0] = int32_t(index % kPairs);
    }
    std::vector<std::string> images;
};

int main(int argc, char** argv) {
    const char* file = argc > 1 ? argv[1] : "digits.txt";
    const int steps = argc > 2 ? std::atoi(argv[2]) : 60;
    return World::mpi().run_program("two_towers", [&](Communicator& world) {
        const ModelConfig model = model_of(two_towers, {.seq_length = 1});
        const StepPlan plan = plan_step(model, {.ranks = world.size()}, {.name = "1f1b"},
                                        {.microbatches = 8, .micro_batch_size = kPairs});
        const auto device = make_host_device();
        TrainedRank rank(world, *device, plan);
        const Digits data(file);
        StepBatch batch(data, {.micro_batch_size = kPairs});
        for (int step = 1; step <= steps; ++step) {
            batch.load(rank.position().consumed_samples, plan.microbatches());
            rank.train_step(batch, 3e-3);
            if (world.rank() == 0) std::printf("step %3d   loss %.4f\n", step, rank.report().loss);
        }
    });
}

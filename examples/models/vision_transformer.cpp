// SPDX-License-Identifier: Apache-2.0
// A vision transformer (ViT) that reads handwritten digits: patches of 2 x 2 pixels are the rows of
// a sequence, and their mean says which digit it is. At last it reads digits that it has not seen.
//   mpirun -np 2 vision_transformer examples/models/digits.txt 100
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "vocabpipe/error.hpp"
#include "vocabpipe/model_graph.hpp"
#include "vocabpipe/trained_rank.hpp"

using namespace vocabpipe;

constexpr int64_t kPatches = 16, kPixels = 4, kSize = 48, kLayers = 4;

void vit(ModelGraph& g) {
    const kernels::AttentionShape heads{.heads = 4, .head_size = kSize / 4, .causal = false};
    LayerValue x = g.positions("at", g.linear("patches", g.data_columns(0, kPixels), kSize));
    for (int i = 0; i < kLayers; ++i) {
        g.pipeline_stage();
        const LayerValue qkv = g.linear("qkv", g.layer_norm("norm_1", x), 3 * kSize);
        x = x + g.linear("o", g.attention(qkv, heads), kSize);
        const LayerValue up = g.linear("up", g.layer_norm("norm_2", x), 4 * kSize);
        x = x + g.linear("out", g.activation(kernels::Activation::gelu_tanh, up), kSize);
    }
    const LayerValue digit = g.linear("digit", g.mean_rows(g.layer_norm("norm", x)), 10);
    g.cross_entropy(g.result("digit", digit));
}

/// The images of a file: words that are in turn a digit and the 64 letters of its pixels.
struct Digits final : SampleSource {
    explicit Digits(std::ifstream in) : words(std::istream_iterator<std::string>(in), {}) {}
    int64_t seq_length() const override { return kPatches; }
    int64_t samples_per_epoch() const override { return 1500; }
    SampleForm form() const override { return {.weighs_labels = true, .columns = kPixels}; }
    void fill(int64_t index, Sample& out) const override {
        const std::string* digit = &words[2 * (first + index % 1500)];
        for (int i = 0; i < 64; ++i) {
            const int y = i / 8, x = i % 8, patch = y / 2 * 4 + x / 2, pixel = y % 2 * 2 + x % 2;
            out.columns[pixel * kPatches + patch] = (digit[1].at(i) - 'a') / 4.0F - 2;
        }
        out.labels[0] = digit[0][0] - '0';  // of the image; its other patches have none
    }
    std::vector<std::string> words;
    int64_t first = 0;  // image; those from 1500 on are not learnt
};

int main(int argc, char** argv) {
    const int steps = argc > 2 ? std::atoi(argv[2]) : 100;
    return World::mpi().run_program("vision_transformer", [&](Communicator& world) {
        const ModelConfig model = model_of(vit, {.seq_length = kPatches, .init_std = 0.1F});
        const StepPlan plan = plan_step(model, {.ranks = world.size()}, {.name = "zb-h1"},
                                        {.microbatches = 8, .micro_batch_size = 16});
        const auto device = make_host_device();
        TrainedRank rank(world, *device, plan);
        Digits data{std::ifstream(argc > 1 ? argv[1] : "digits.txt")};
        if (data.words.size() < 2 * 1628) throw InputFileError("the file has too few digits");
        StepBatch batch(data, {.micro_batch_size = 16});
        for (int step = 1; step <= steps; ++step) {
            batch.load(rank.position().consumed_samples, plan.microbatches());
            rank.train_step(batch, 3e-3);
            if (world.rank() == 0) std::printf("step %3d   loss %.4f\n", step, rank.report().loss);
        }
        data.first = 1500;
        batch.load(0, plan.microbatches());
        rank.train_step(batch, 0);  // a rate of 0: nothing is learnt
        const std::vector<float> scores = rank.results("digit");
        int right = 0;
        for (int i = 0; i < 128; ++i) {
            const auto of = scores.begin() + 10 * i;
            right += std::max_element(of, of + 10) - of == data.words[2 * (1500 + i)][0] - '0';
        }
        if (world.rank() == 0) std::printf("right in %d of 128 unseen digits\n", right);
    });
}

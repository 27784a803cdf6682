// SPDX-License-Identifier: Apache-2.0
// A GPT with an attention of its own: retention (Sun et al. 2023), whose scores have no softmax but
// decay with the distance of tokens. It is an operator with a forward and a backward in loops.
//   mpirun -np 2 own_attention README.md 30
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "vocabpipe/model_graph.hpp"
#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/token_dataset.hpp"
#include "vocabpipe/trained_rank.hpp"

using namespace vocabpipe;

constexpr int64_t kLength = 64, kHeads = 4, kSize = 16, kColumns = kHeads * kSize;

/// y_i = sum of decay^|i - j| (a_i b_j) c_j over the tokens j = i, i + step, ... of a sequence.
void retain(ConstTensor a, ConstTensor b, ConstTensor c, Tensor y, int step) {
    for (int64_t i = 0; i < y.rows * kHeads; ++i) {  // every head of every token
        const int64_t begin = i - i % (kLength * kHeads), end = begin + kLength * kHeads;
        const float* a_i = a.as<float>() + i * kSize;
        float* y_i = y.as<float>() + i * kSize;
        std::fill_n(y_i, kSize, 0.0F);
        float decay = 1 - 1.0F / float(4 << i % kHeads), weight = 1;
        for (int64_t j = i; j >= begin && j < end; j += step * kHeads, weight *= decay) {
            const float* b_j = b.as<float>() + j * kSize;
            const float score = weight * std::inner_product(a_i, a_i + kSize, b_j, 0.0F);
            for (int64_t n = 0; n < kSize; ++n) y_i[n] += score * c.as<float>()[j * kSize + n];
        }
    }
}

const LayerOperator kRetention{
    .name = "retention",
    .columns = kColumns,
    .forward = [](auto&, auto&, auto& in, auto y) { retain(in.x[0], in.x[1], in.x[2], y, -1); },
    .backward_input =
        [](auto&, auto&, auto& in, auto dy, auto dx) {
            const ConstTensor q = in.x[0], k = in.x[1], v = in.x[2];
            retain(dy, v, k, dx[0], -1);
            retain(v, dy, q, dx[1], 1);
            retain(k, q, dy, dx[2], 1);
        }};

void gpt(ModelGraph& g) {
    const auto linear = [&](const char* name, LayerValue x, int64_t columns = kColumns) {
        return g.linear(name, x, columns);
    };
    LayerValue x = g.embedded_tokens();
    for (int i = 0; i < 4; ++i) {
        g.pipeline_stage();
        const LayerValue n = g.rms_norm("norm_1", x);
        const LayerValue y = g.apply(kRetention, {linear("q", n), linear("k", n), linear("v", n)});
        x = x + linear("o", y);
        const LayerValue up = linear("up", g.rms_norm("norm_2", x), 4 * kColumns);
        x = x + linear("down", g.activation(kernels::Activation::gelu_tanh, up));
    }
    g.output(g.rms_norm("norm", x));
}

int main(int argc, char** argv) {
    const char* text = argc > 1 ? argv[1] : argv[0];
    const int steps = argc > 2 ? std::atoi(argv[2]) : 30;
    return World::mpi().run_program("own_attention", [&](Communicator& world) {
        const ModelConfig model = model_of(gpt, {.hidden_size = kColumns, .seq_length = kLength});
        const StepPlan plan = plan_step(model, {.ranks = world.size()}, {.name = "zb-h1"},
                                        {.microbatches = 8, .micro_batch_size = 2});
        const auto device = make_host_device();
        TrainedRank rank(world, *device, plan);
        const TokenDataset data(open_tokens(text, DataFormat::raw_u8), {.seq_length = kLength});
        StepBatch batch(data, {.micro_batch_size = 2});
        for (int step = 1; step <= steps; ++step) {
            batch.load(rank.position().consumed_samples, plan.microbatches());
            rank.train_step(batch, 1e-3);
            if (world.rank() == 0) std::printf("step %3d   loss %.4f\n", step, rank.report().loss);
        }
    });
}

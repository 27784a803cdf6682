// SPDX-License-Identifier: Apache-2.0
// A pipeline of layers of your own, of which you write the forward alone: attention and a gated MLP
// beside each other. Backward, memory and communication follow.
//
//   mpirun -np 2 own_layers README.md 30
#include <cstdio>
#include <cstdlib>

#include "vocabpipe/layer_graph.hpp"
#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/token_dataset.hpp"
#include "vocabpipe/trained_rank.hpp"

using namespace vocabpipe;

LayerValue layer(LayerGraph& g, LayerValue x) {
    const int64_t h = x.columns();
    const kernels::AttentionShape heads{.heads = 4, .head_size = h / 4, .kv_heads = 4};
    const LayerValue n = g.rms_norm("norm", x);
    const LayerValue qkv = g.rotary(g.linear("qkv", n, {.out = {h, h, h}}), heads);
    const LayerValue gate_up = g.linear("gate_up", n, {.out = {2 * h, 2 * h}});
    return x + g.linear("o", g.attention(qkv, heads), {.out = {h}}) +
           g.linear("down", g.gated(kernels::Activation::silu, gate_up), {.out = {h}});
}

int main(int argc, char** argv) {
    const char* text = argc > 1 ? argv[1] : argv[0];
    const int steps = argc > 2 ? std::atoi(argv[2]) : 30;
    return World::mpi().run_program("own_layers", [&](Communicator& world) {
        const ModelConfig model{.learned_positions = false, .layer_forward = layer};
        const StepPlan plan = plan_step(model, {.ranks = world.size()}, {.name = "zb-h1"},
                                        {.microbatches = 8, .micro_batch_size = 2});
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

// SPDX-License-Identifier: Apache-2.0
// An encoder-decoder on text, as T5 is one: the encoder reads the first half of every sequence, in
// both directions; the decoder writes the second, and looks in every layer at what was read.
//   mpirun -np 2 encoder_decoder README.md 30
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "vocabpipe/model_graph.hpp"
#include "vocabpipe/open_tokens.hpp"
#include "vocabpipe/token_dataset.hpp"
#include "vocabpipe/trained_rank.hpp"

using namespace vocabpipe;

constexpr int64_t kHalf = 32;  // of a sequence

/// A layer of the encoder or, with what was read, of the decoder.
LayerValue layer(ModelGraph& g, LayerValue x, std::optional<LayerValue> read = {}) {
    const int64_t h = x.columns();
    const kernels::AttentionShape heads{
        .heads = 4, .head_size = h / 4, .kv_heads = 4, .causal = read.has_value()};
    const LayerValue qkv = g.linear("qkv", g.rms_norm("norm_1", x), {.out = {h, h, h}});
    x = x + g.linear("o", g.attention(qkv, heads), h);
    if (read) {
        const LayerValue q = g.linear("cross_q", g.rms_norm("norm_2", x), h);
        const LayerValue kv = g.linear("cross_kv", *read, {.out = {h, h}});
        x = x + g.linear("cross_o", g.attention(q, kv, heads), h);
    }
    const LayerValue up = g.linear("up", g.rms_norm("norm_3", x), 4 * h);
    return x + g.linear("down", g.activation(kernels::Activation::gelu_tanh, up), h);
}

void encoder_decoder(ModelGraph& g) {
    const LayerValue tokens = g.embedded_tokens();
    LayerValue read = g.positions("read", g.row_range(tokens, 0, kHalf));
    LayerValue written = g.positions("written", g.row_range(tokens, kHalf, kHalf));
    read = layer(g, read);
    g.pipeline_stage();
    read = g.rms_norm("norm", layer(g, read));
    g.pipeline_stage();
    written = layer(g, written, read);
    g.pipeline_stage();
    written = g.rms_norm("norm", layer(g, written, read));
    g.output(g.join_rows(read, written));  // of which every rank scores a part of the vocabulary
}

/// Pieces of a text, with labels for the second half alone.
struct SecondHalves final : SampleSource {
    explicit SecondHalves(const TokenDataset& whole) : pieces(whole) {}
    int64_t seq_length() const override { return 2 * kHalf; }
    int64_t samples_per_epoch() const override { return pieces.samples_per_epoch(); }
    SampleForm form() const override { return {.weighs_labels = true}; }
    void fill(int64_t index, Sample& out) const override {
        pieces.sample(index, out);
        std::fill_n(out.labels.begin(), kHalf, kIgnoredLabel);
    }
    const TokenDataset& pieces;
};

int main(int argc, char** argv) {
    const char* text = argc > 1 ? argv[1] : argv[0];
    const int steps = argc > 2 ? std::atoi(argv[2]) : 30;
    return World::mpi().run_program("encoder_decoder", [&](Communicator& world) {
        const ModelConfig model = model_of(encoder_decoder, {.seq_length = 2 * kHalf});
        const StepPlan plan = plan_step(model, {.ranks = world.size()}, {.name = "1f1b"},
                                        {.microbatches = 8, .micro_batch_size = 2});
        const auto device = make_host_device();
        TrainedRank rank(world, *device, plan);
        const TokenDataset data(open_tokens(text, DataFormat::raw_u8), {.seq_length = 2 * kHalf});
        const SecondHalves labelled(data);
        StepBatch batch(labelled, {.micro_batch_size = 2});
        for (int step = 1; step <= steps; ++step) {
            batch.load(rank.position().consumed_samples, plan.microbatches());
            rank.train_step(batch, 1e-3);
            if (world.rank() == 0) std::printf("step %3d   loss %.4f\n", step, rank.report().loss);
        }
    });
}

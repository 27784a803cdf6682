// SPDX-License-Identifier: Apache-2.0
// Models that are written as one function, for tests of stages that are a graph.
#pragma once

#include "vocabpipe/model_graph.hpp"

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace vocabpipe::testing {

inline constexpr int64_t kGraphColumns = 5;  ///< of the data that these models may read
inline constexpr int64_t kGraphClasses = 7;  ///< labels are below
inline constexpr int64_t kGraphSequences = 2;

struct GraphModel {
    std::string name;
    ModelConfig config;

    friend void PrintTo(const GraphModel& model, std::ostream* out) { *out << model.name; }
};

/// Attention with a causal mask or without, and an MLP.
[[nodiscard]] inline LayerValue graph_block(ModelGraph& g, LayerValue x, bool causal) {
    const int64_t h = x.columns();
    const kernels::AttentionShape heads{
        .heads = 2, .head_size = h / 2, .kv_heads = 1, .causal = causal};
    const LayerValue qkv = g.linear("qkv", g.layer_norm("norm_1", x), {.out = {h, h / 2, h / 2}});
    x = x + g.linear("o", g.attention(qkv, heads), {.out = {h}});
    const LayerValue up = g.linear("up", g.rms_norm("norm_2", x), {.out = {24}});
    return x + g.linear("down", g.activation(kernels::Activation::gelu_tanh, up), {.out = {h}});
}

/// A decoder whose first layers hand what they make to the last ones, and an output layer.
inline void skipping_decoder(ModelGraph& g) {
    LayerValue x = g.positions("wpe", g.embedded_tokens());
    std::vector<LayerValue> made;
    for (int i = 0; i < 3; ++i) {
        x = graph_block(g, x, true);
        made.push_back(x);
        g.pipeline_stage();
    }
    for (int i = 0; i < 3; ++i) {
        const LayerValue both = g.join_columns({x, made[static_cast<size_t>(2 - i)]});
        x = graph_block(g, g.linear("both", both, {.out = {x.columns()}}), true);
        // The first value again, so that several stages read it, some of them twice.
        x = x + g.scale(made[0], 0.5F) + g.linear("again", made[0], {.out = {x.columns()}});
        if (i < 2) g.pipeline_stage();
    }
    g.output(g.rms_norm("norm", x));
}

/// Pools rows of data on the way down, joins them on the way up, and has a loss at both ends.
inline void data_unet(ModelGraph& g) {
    LayerValue x = g.positions("at", g.linear("in", g.data_columns(0, 3), {.out = {8}}));
    std::vector<LayerValue> skipped, pooled;
    for (int i = 0; i < 2; ++i) {
        x = graph_block(g, x, false);
        skipped.push_back(x);
        x = g.linear("pool", g.reshape(x, 2 * x.columns()), {.out = {8}});
        pooled.push_back(x);
        g.pipeline_stage();
    }
    g.cross_entropy(
        g.result("classes", g.linear("classes", g.mean_rows(x), {.out = {kGraphClasses}})));
    x = graph_block(g, x, false);
    for (int i = 1; i >= 0; --i) {
        g.pipeline_stage();
        x = g.reshape(g.linear("spread", x, {.out = {16}}), 8);
        x = g.join_columns({x, skipped[static_cast<size_t>(i)]});
        x = graph_block(g, g.linear("joined", x, {.out = {8}}), false);
    }
    g.result("pooled", skipped[1]);  // of an earlier layer
    // Read by nothing else in this layer, and by no loss.
    g.result("early", g.activation(kernels::Activation::silu, g.scale(pooled[0], 2)));
    g.result("mean", g.mean_rows(x + x));
    g.squared_error(g.linear("out", x, {.out = {2}}), 3);
}

/// Half of a sequence is read, the other half written.
inline void encoder_decoder(ModelGraph& g) {
    const int64_t half = g.seq_length() / 2, h = g.model().hidden_size;
    const LayerValue tokens = g.embedded_tokens();
    LayerValue read = g.positions("read", g.row_range(tokens, 0, half));
    LayerValue written = g.positions("written", g.row_range(tokens, half, half));
    for (int i = 0; i < 2; ++i) {
        read = graph_block(g, read, false);
        g.pipeline_stage();
    }
    const kernels::AttentionShape heads{.heads = 2, .head_size = h / 2, .kv_heads = 2};
    for (int i = 0; i < 2; ++i) {
        written = graph_block(g, written, true);
        const LayerValue q = g.linear("q", g.layer_norm("norm_3", written), {.out = {h}});
        const LayerValue kv = g.linear("kv", read, {.out = {h, h}});
        written = written + g.linear("cross", g.attention(q, kv, heads), {.out = {h}});
        if (i < 1) g.pipeline_stage();
    }
    g.output(g.join_rows(read, written));
}

/// y = a b^T of the sequences of a microbatch, in fp32 on hosts.
[[nodiscard]] inline LayerOperator similarities() {
    constexpr int64_t n = kGraphSequences;
    return {
        .name = "similarities",
        .columns = n,
        .forward =
            [](Context&, const Microbatch&, const OperatorTensors& in, Tensor y) {
                const auto* a = in.x[0].as<float>();
                const auto* b = in.x[1].as<float>();
                for (int64_t i = 0; i < n * n; ++i) {
                    y.as<float>()[i] = 0;
                    for (int64_t c = 0; c < in.x[0].cols; ++c) {
                        y.as<float>()[i] +=
                            a[i / n * in.x[0].cols + c] * b[i % n * in.x[0].cols + c];
                    }
                }
            },
        .backward_input =
            [](Context&, const Microbatch&, const OperatorTensors& in, ConstTensor dy,
               std::span<const Tensor> dx) {
                const int64_t columns = in.x[0].cols;
                for (int64_t k = 0; k < n * columns; ++k) {
                    const int64_t row = k / columns, c = k % columns;
                    float da = 0, db = 0;
                    for (int64_t i = 0; i < n; ++i) {
                        da += dy.as<float>()[row * n + i] * in.x[1].as<float>()[i * columns + c];
                        db += dy.as<float>()[i * n + row] * in.x[0].as<float>()[i * columns + c];
                    }
                    dx[0].as<float>()[k] = da;
                    dx[1].as<float>()[k] = db;
                }
            }};
}

/// Text and data, compared with each other.
inline void two_towers(ModelGraph& g) {
    LayerValue text = graph_block(g, g.embedded_tokens(), false);
    g.pipeline_stage();
    text = g.linear("text", g.mean_rows(graph_block(g, text, false)), {.out = {6}});
    g.pipeline_stage();
    LayerValue data = graph_block(g, g.linear("in", g.data_columns(0, 4), {.out = {8}}), false);
    g.pipeline_stage();
    data = g.linear("data", g.mean_rows(graph_block(g, data, false)), {.out = {6}});
    g.cross_entropy(g.apply(similarities(), {text, data}));
    // And a loss of its own: the mean of the first column.
    g.loss(g.column_range(data, 0, 1));
}

/// Every layer is the same one, and has a product that it uses twice itself.
inline void shared_layers(ModelGraph& g) {
    LayerValue x = g.positions("wpe", g.embedded_tokens());
    for (int layer = 0; layer < 4; ++layer) {
        if (layer > 0) g.pipeline_stage();
        g.share("block", [&] { x = graph_block(g, x, true); });
        for (int i = 0; i < 2; ++i) {
            g.share("twice", [&] { x = x + g.linear("product", x, {.out = {x.columns()}}); });
        }
        x = g.layer_norm("norm", x);
    }
    g.output(x);
}

/// All of them.
[[nodiscard]] inline std::vector<GraphModel> graph_models() {
    ModelConfig base;
    base.hidden_size = 8;
    base.seq_length = 8;
    base.vocab_size = 19;
    base.init_std = 0.3F;
    return {{"SkippingDecoder", model_of(skipping_decoder, base)},
            {"DataUNet", model_of(data_unet, base)},
            {"EncoderDecoder", model_of(encoder_decoder, base)},
            {"TwoTowers", model_of(two_towers, base)},
            {"SharedLayers", model_of(shared_layers, base)}};
}

}  // namespace vocabpipe::testing

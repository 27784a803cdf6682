// SPDX-License-Identifier: Apache-2.0
// Counts of a mean layer: parameters, FLOPs, elements moved and bytes kept. Layers of different
// kinds, such as MLP and experts, enter with their shares.
#include "vocabpipe/transformer_shape.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/model_config.hpp"

#include <algorithm>
#include <cmath>

namespace vocabpipe {

namespace {

constexpr int64_t kStatistic = 4;  // bytes of fp32

/// Far above any model; keeps every product of sizes within 63 bits.
constexpr int64_t kMost = int64_t{1} << 24;

void require(const TransformerShape& shape, const char* size, int64_t value, int64_t least,
             int64_t most) {
    if (value >= least && value <= most) return;
    throw UsageError("model " + shape.name + ": " + size + " " + std::to_string(value) +
                     ": must be from " + std::to_string(least) + " to " + std::to_string(most));
}

/// Share of the layers that have experts.
double layers_with_experts(const TransformerShape& s) {
    return s.moe.layers == 0 ? 0 : static_cast<double>(s.moe.layers) / s.num_layers;
}

/// Width of q, k and v together.
int64_t qkv(const TransformerShape& s) {
    return (s.num_attention_heads + 2 * s.num_key_value_heads) * s.head_size;
}

int64_t norm_parameters(const TransformerShape& s) {
    return (s.layer_norm ? 2 : 1) * s.hidden_size;
}

/// Vectors per token for which norms of q and k keep statistics, besides q, k and v.
int64_t normed_vectors(const TransformerShape& s) {
    if (!s.qk_norms) return 0;
    return s.qk_norms_by_head ? s.num_attention_heads + s.num_key_value_heads : 2;
}
/// Elements of both gammas.
int64_t qk_norm_parameters(const TransformerShape& s) {
    if (!s.qk_norms) return 0;
    return (s.qk_norms_by_head ? 2 : s.num_attention_heads + s.num_key_value_heads) * s.head_size;
}
double sum_of(const TransformerShape::LayerParameters& layer) {
    return layer.cut + layer.repeated + layer.experts;
}
int64_t qkv_of_norms(const TransformerShape& s) {
    return s.qk_norms ? qkv(s) : 0;
}

/// Elements that the feed-forward part of a layer moves and keeps besides its linear layers, per
/// token.
struct FeedForward {
    double forward = 0, backward = 0, recompute = 0;   ///< elements read and written
    double saved = 0, recomputed = 0, for_weight = 0;  ///< elements kept
    double statistics = 0;                             ///< numbers of 4 bytes kept

    /// Adds `share` of another.
    void add(const FeedForward& other, double share) {
        for (double FeedForward::*const figure :
             {&FeedForward::forward, &FeedForward::backward, &FeedForward::recompute,
              &FeedForward::saved, &FeedForward::recomputed, &FeedForward::for_weight,
              &FeedForward::statistics}) {
            this->*figure += share * (other.*figure);
        }
    }
};

FeedForward mlp(bool gated, int64_t ffn_hidden_size) {
    const auto f = static_cast<double>(ffn_hidden_size);
    return {.forward = (gated ? 3 : 2) * f,
            .backward = (gated ? 5 : 3) * f,
            .recompute = (gated ? 3 : 2) * f,
            .saved = (gated ? 3 : 2) * f,
            .recomputed = f,
            .for_weight = (gated ? 2 : 1) * f};
}

/// Traffic and memory of k chosen gated experts among `experts`. Forward copies rows and adds them
/// up with weights; backward copies them, scales them in both sizes, multiplies them for the
/// weights' gradients, and adds them up. `held`: rows that memory has room for, as a multiple of
/// these rows.
FeedForward routed(int64_t hidden_size, int64_t ffn_hidden_size, int64_t experts, int64_t k,
                   double held) {
    const auto n = static_cast<double>(k);
    const double rows = n * static_cast<double>(hidden_size);
    const double inner = n * static_cast<double>(ffn_hidden_size);
    const auto e = static_cast<double>(experts);
    return {.forward = 3 * rows + 3 * inner,
            .backward = 5 * rows + 9 * inner,
            .recompute = 2 * rows + 3 * inner,
            .saved = held * (rows + 3 * inner),
            .recomputed = held * (rows + inner),
            .for_weight = e + held * (rows + 2 * inner),
            .statistics = e + 1 + 4 * n};
}

/// Traffic and memory of the mean layer. `expert_rows` as in TransformerShape::saved_bytes().
FeedForward feed_forward(const TransformerShape& s, double expert_rows = 1) {
    const double sparse = layers_with_experts(s);
    FeedForward mean;
    mean.add(mlp(s.gated_mlp, s.ffn_hidden_size), 1 - sparse);
    if (sparse == 0) return mean;
    mean.add(
        routed(s.hidden_size, s.moe.ffn_hidden_size, s.moe.experts, s.moe.per_token, expert_rows),
        sparse);
    const int64_t shared = s.moe.shared_ffn_hidden_size;
    if (shared == 0) return mean;
    mean.add(s.moe.shared_gate ? routed(s.hidden_size, shared, 1, 1, 1) : mlp(s.gated_mlp, shared),
             sparse);
    mean.for_weight += sparse * static_cast<double>(s.hidden_size);  // shared expert's dx
    return mean;
}

/// The number of norms of sublayer inputs, whose outputs linear layers read. Norms of sublayer
/// outputs go into the residual stream, which is kept.
int64_t norms_before_linear(const TransformerShape& s) {
    return s.pre_norms ? std::min(s.norms_per_layer, 2) : 0;
}

/// Elements of q and k that rotary positions read and write: the mean over all layers.
double rotary(const TransformerShape& s) {
    if (s.learned_positions > 0) return 0;
    return 2.0 * static_cast<double>(s.num_attention_heads + s.num_key_value_heads) *
           static_cast<double>(s.rotary_size > 0 ? s.rotary_size : s.head_size) *
           (1 - static_cast<double>(s.layers_without_rope) / s.num_layers);
}

}  // namespace

void TransformerShape::check() const {
    require(*this, "layers", num_layers, 1, 1 << 16);
    require(*this, "hidden size", hidden_size, 1, kMost);
    require(*this, "feed-forward size", ffn_hidden_size, 1, kMost);
    require(*this, "attention heads", num_attention_heads, 1, 1 << 16);
    require(*this, "key/value heads", num_key_value_heads, 1, num_attention_heads);
    require(*this, "head size", head_size, 1, 1 << 16);
    require(*this, "columns with rotary positions", rotary_size, 0, head_size);
    require(*this, "vocabulary", vocab_size, 1, int64_t{1} << 32);
    require(*this, "norms per layer", norms_per_layer, 0, 8);
    require(*this, "learned positions", learned_positions, 0, int64_t{1} << 32);
    require(*this, "sliding window", sliding_window, 0, int64_t{1} << 40);
    require(*this, "windowed layers", windowed_layers, 0, num_layers);
    if (moe.layers > 0) {
        require(*this, "experts", moe.experts, 1, 1 << 12);
        require(*this, "experts per token", moe.per_token, 1, moe.experts);
        require(*this, "feed-forward size of an expert", moe.ffn_hidden_size, 1, kMost);
        require(*this, "feed-forward size of the shared expert", moe.shared_ffn_hidden_size, 0,
                kMost);
        require(*this, "layers with experts", moe.layers, 0, num_layers);
    }
    require(*this, "layers without rotary positions", layers_without_rope, 0, num_layers);
}

TransformerShape shape_of(const ModelConfig& c) {
    TransformerShape shape{.num_layers = c.num_layers,
                           .hidden_size = c.hidden_size,
                           .ffn_hidden_size = c.ffn_hidden_size,
                           .num_attention_heads = c.num_attention_heads,
                           .num_key_value_heads = c.kv_heads(),
                           .head_size = c.head_size(),
                           .vocab_size = c.vocab_size,
                           .learned_positions = c.learned_positions ? c.max_position_embeddings : 0,
                           .gated_mlp = c.gated,
                           .layer_norm = c.normalization == Normalization::layer_norm,
                           .norms_per_layer = (c.pre_norms ? 2 : 0) + (c.post_norms ? 2 : 0),
                           .pre_norms = c.pre_norms,
                           .qk_norms = c.qk_norm,
                           .qk_norms_by_head = c.qk_norm_by_head,
                           .qkv_bias = c.qkv_bias,
                           .attention_output_bias = c.attention_output_bias,
                           .mlp_bias = c.mlp_bias,
                           .tied = c.tied,
                           .sliding_window = c.windowed.empty() ? 0 : c.sliding_window,
                           .rotary_size = c.rotary_channels > 0 ? c.rotary_size() : 0,
                           .parallel_residual = c.parallel_residual};
    for (int layer = 0; layer < c.num_layers; ++layer) {
        shape.windowed_layers += c.window(layer) > 0 ? 1 : 0;
        shape.layers_without_rope += c.learned_positions || c.has_rope(layer) ? 0 : 1;
        shape.moe.layers += c.moe.in_layer(layer) ? 1 : 0;
    }
    if (c.moe.experts > 0) {
        shape.moe.experts = c.moe.experts;
        shape.moe.per_token = c.moe.top_k;
        shape.moe.ffn_hidden_size = c.expert_ffn_hidden_size();
        if (c.moe.shared_expert) shape.moe.shared_ffn_hidden_size = c.shared_ffn_hidden_size();
        shape.moe.shared_gate = c.moe.shared_expert && c.moe.shared_gate;
        shape.moe.correction_bias = c.moe.correction_bias;
    }
    return shape;
}

std::vector<TransformerShape::Matrix> TransformerShape::matrices() const {
    std::vector<Matrix> all{{hidden_size, qkv(*this), 1, 1, 1, Cut::columns},
                            {num_attention_heads * head_size, hidden_size, 1, 1, 1, Cut::rows}};
    const double sparse = layers_with_experts(*this);
    const auto add_mlp = [&](int64_t f, double of_layers, Cut first, Cut second, int64_t count = 1,
                             double rows = 1) {
        all.push_back({hidden_size, (gated_mlp ? 2 : 1) * f, count, rows, of_layers, first});
        all.push_back({f, hidden_size, count, rows, of_layers, second});
    };
    if (sparse < 1) add_mlp(ffn_hidden_size, 1 - sparse, Cut::columns, Cut::rows);
    if (sparse == 0) return all;
    const double rows = static_cast<double>(moe.per_token) / static_cast<double>(moe.experts);
    all.push_back({hidden_size, moe.experts, 1, 1, sparse});
    add_mlp(moe.ffn_hidden_size, sparse, Cut::experts, Cut::experts, moe.experts, rows);
    if (moe.shared_ffn_hidden_size > 0) {
        // A shared expert with a gate is a mixture of one expert, which tensor ranks do not share.
        add_mlp(moe.shared_ffn_hidden_size, sparse, moe.shared_gate ? Cut::repeated : Cut::columns,
                moe.shared_gate ? Cut::repeated : Cut::rows);
    }
    if (moe.shared_gate) all.push_back({hidden_size, 1, 1, 1, sparse});
    return all;
}

TransformerShape::LayerParameters TransformerShape::layer_parameters() const {
    LayerParameters layer;
    for (const Matrix& m : matrices()) {
        const double elements = static_cast<double>(m.in * m.out * m.count) * m.of_layers;
        (m.cut == Cut::experts    ? layer.experts
         : m.cut == Cut::repeated ? layer.repeated
                                  : layer.cut) += elements;
    }
    int64_t cut = qkv_bias ? qkv(*this) : 0;
    int64_t repeated = norms_per_layer * norm_parameters(*this);
    (qk_norms_by_head ? repeated : cut) += qk_norm_parameters(*this);
    if (attention_output_bias) repeated += hidden_size;
    if (mlp_bias) {
        cut += (gated_mlp ? 2 : 1) * ffn_hidden_size;
        repeated += hidden_size;
    }
    layer.cut += static_cast<double>(cut);
    layer.repeated += static_cast<double>(repeated);
    if (moe.correction_bias) {
        layer.repeated += static_cast<double>(moe.experts) * layers_with_experts(*this);
    }
    return layer;
}

int64_t TransformerShape::parameters() const {
    return std::llround(num_layers * sum_of(layer_parameters())) + norm_parameters(*this) +
           learned_positions * hidden_size + (tied ? 1 : 2) * vocab_size * hidden_size;
}

int64_t TransformerShape::active_parameters() const {
    return parameters() - moe.layers * (moe.experts - moe.per_token) * (gated_mlp ? 3 : 2) *
                              hidden_size * moe.ffn_hidden_size;
}

double TransformerShape::dense_flops() const {
    double sum = 0;
    for (const Matrix& m : matrices()) {
        sum += 2.0 * static_cast<double>(m.in * m.out * m.count) * m.rows * m.of_layers;
    }
    return sum;
}

double TransformerShape::attention_flops(int64_t seq_length) const {
    // Two products of 2 d FLOPs per head and attended token. A causal row attends to half of the
    // tokens in the mean; a row with a window w < s attends to w of them, except for the first w
    // rows.
    const auto s = static_cast<double>(seq_length);
    const double all = s / 2;
    double mean = all;
    if (windowed_layers > 0 && sliding_window > 0 && sliding_window < seq_length) {
        const auto w = static_cast<double>(sliding_window);
        const double windowed = w - w * w / (2 * s);
        mean += (windowed - all) * (static_cast<double>(windowed_layers) / num_layers);
    }
    return 4.0 * static_cast<double>(num_attention_heads * head_size) * mean;
}

double TransformerShape::forward_flops(int64_t seq_length) const {
    return num_layers * (dense_flops() + attention_flops(seq_length)) +
           2.0 * static_cast<double>(hidden_size) * static_cast<double>(vocab_size);
}

double TransformerShape::elementwise_forward() const {
    const auto h = static_cast<double>(hidden_size);
    // A norm reads and writes h, a residual addition reads 2 h and writes h; the activation reads f
    // (gated: 2 f) and writes f.
    return norms_per_layer * 2 * h + 2 * 3 * h + rotary(*this) + feed_forward(*this).forward +
           2 * static_cast<double>(qkv_of_norms(*this));
}

double TransformerShape::elementwise_backward() const {
    const auto h = static_cast<double>(hidden_size);
    // A norm reads its input and dy and writes dx; gradients of the residual are added as in the
    // forward; the activation reads its inputs and dy and writes the gradients of its inputs.
    return norms_per_layer * 3 * h + 2 * 3 * h + rotary(*this) + feed_forward(*this).backward +
           3 * static_cast<double>(qkv_of_norms(*this));
}

int64_t TransformerShape::saved_bytes(int64_t element_bytes, double expert_rows) const {
    // The residual stream before attention and, where the MLP reads it, after it; its norms, which
    // linear layers read; and sublayer outputs that are normalised.
    const int64_t before_linear = norms_before_linear(*this);
    const int64_t outputs = norms_per_layer > before_linear ? 2 : 0;
    const int64_t residual = parallel_residual ? 1 : 2;
    const int64_t elements = (residual + before_linear + outputs) * hidden_size + qkv(*this) +
                             qkv_of_norms(*this) + num_attention_heads * head_size +
                             std::llround(feed_forward(*this, expert_rows).saved);
    const int64_t statistics = norms_per_layer * (layer_norm ? 2 : 1) + num_attention_heads +
                               normed_vectors(*this) + std::llround(feed_forward(*this).statistics);
    return elements * element_bytes + statistics * kStatistic;
}

int64_t TransformerShape::recomputed_bytes(Recompute recompute, int64_t element_bytes,
                                           double expert_rows) const {
    if (recompute == Recompute::none) return 0;
    if (recompute == Recompute::full) return saved_bytes(element_bytes, expert_rows);
    const int64_t norms = norms_before_linear(*this);
    return (norms * hidden_size + qkv_of_norms(*this) +
            std::llround(feed_forward(*this, expert_rows).recomputed)) *
               element_bytes +
           (norms * (layer_norm ? 2 : 1) + normed_vectors(*this)) * kStatistic;
}

double TransformerShape::elementwise_recompute() const {
    return static_cast<double>(norms_before_linear(*this) * 2 * hidden_size +
                               2 * qkv_of_norms(*this)) +
           feed_forward(*this).recompute;
}

int64_t TransformerShape::for_weight_bytes(int64_t element_bytes, double expert_rows) const {
    return ((parallel_residual ? 3 : 4) * hidden_size + qkv(*this) + qkv_of_norms(*this) +
            std::llround(feed_forward(*this, expert_rows).for_weight)) *
           element_bytes;
}

int64_t TransformerShape::scratch_columns(double expert_rows) const {
    int64_t most = std::max(hidden_size, num_attention_heads * head_size);
    const double sparse = layers_with_experts(*this);
    if (gated_mlp && sparse < 1) most = std::max(most, ffn_hidden_size);
    if (sparse > 0) {
        const int64_t widest = std::max(hidden_size, moe.ffn_hidden_size);
        const double of_rows = expert_rows * static_cast<double>(moe.per_token * widest);
        most = std::max({most, moe.shared_ffn_hidden_size, int64_t{std::llround(of_rows)}});
    }
    return most;
}

}  // namespace vocabpipe

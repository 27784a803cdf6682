// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/transformer_shape.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/model_config.hpp"

#include <algorithm>

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

/// Width of q, k and v together.
int64_t qkv(const TransformerShape& s) {
    return (s.num_attention_heads + 2 * s.num_key_value_heads) * s.head_size;
}

int64_t matrix_parameters(const TransformerShape& s) {
    int64_t sum = 0;
    for (const TransformerShape::Matrix& matrix : s.matrices()) sum += matrix.in * matrix.out;
    return sum;
}

int64_t norm_parameters(const TransformerShape& s) {
    return (s.layer_norm ? 2 : 1) * s.hidden_size;
}

/// What norms of q and k leave besides q, k and v: statistics of so many vectors.
int64_t normed_vectors(const TransformerShape& s) {
    if (!s.qk_norms) return 0;
    return s.qk_norms_by_head ? s.num_attention_heads + s.num_key_value_heads : 2;
}
/// Elements of both gammas.
int64_t qk_norm_parameters(const TransformerShape& s) {
    if (!s.qk_norms) return 0;
    return (s.qk_norms_by_head ? 2 : s.num_attention_heads + s.num_key_value_heads) * s.head_size;
}
int64_t qkv_of_norms(const TransformerShape& s) {
    return s.qk_norms ? qkv(s) : 0;
}

/// Norms of sublayer inputs, whose outputs linear layers read. Those of sublayer outputs go into
/// the residual stream, which is kept.
int64_t norms_before_linear(const TransformerShape& s) {
    return s.pre_norms ? std::min(s.norms_per_layer, 2) : 0;
}

/// q and k are read and written by rotary positions; the mean of layers with and without.
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
    require(*this, "layers without rotary positions", layers_without_rope, 0, num_layers);
}

TransformerShape shape_of(const ModelConfig& c) {
    if (c.moe.experts > 0) {
        throw UsageError("--model: model_type " + c.family +
                         " has a mixture of experts, which plan does not know; use a dense model");
    }
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
                           .rotary_size = c.rotary_channels,
                           .parallel_residual = c.parallel_residual};
    for (int layer = 0; layer < c.num_layers; ++layer) {
        shape.windowed_layers += c.window(layer) > 0 ? 1 : 0;
        shape.layers_without_rope += c.learned_positions || c.has_rope(layer) ? 0 : 1;
    }
    return shape;
}

std::array<TransformerShape::Matrix, 4> TransformerShape::matrices() const {
    return {{{hidden_size, qkv(*this)},
             {num_attention_heads * head_size, hidden_size},
             {hidden_size, (gated_mlp ? 2 : 1) * ffn_hidden_size},
             {ffn_hidden_size, hidden_size}}};
}

int64_t TransformerShape::layer_parameters() const {
    int64_t biases = 0;
    if (qkv_bias) biases += qkv(*this);
    if (attention_output_bias) biases += hidden_size;
    if (mlp_bias) biases += (gated_mlp ? 2 : 1) * ffn_hidden_size + hidden_size;
    return matrix_parameters(*this) + biases + norms_per_layer * norm_parameters(*this) +
           qk_norm_parameters(*this);
}

int64_t TransformerShape::parameters() const {
    return num_layers * layer_parameters() + norm_parameters(*this) +
           learned_positions * hidden_size + (tied ? 1 : 2) * vocab_size * hidden_size;
}

double TransformerShape::dense_flops() const {
    return 2.0 * static_cast<double>(matrix_parameters(*this));
}

double TransformerShape::attention_flops(int64_t seq_length) const {
    // Two products of 2 d FLOPs per head and attended token. A causal row attends to half of the
    // tokens in the mean; one with a window w < s to w of them but for the first w rows.
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
    const auto f = static_cast<double>(ffn_hidden_size);
    // A norm reads and writes h, a residual addition reads 2 h and writes h; the activation reads f
    // (gated: 2 f) and writes f.
    return norms_per_layer * 2 * h + 2 * 3 * h + rotary(*this) + (gated_mlp ? 3 : 2) * f +
           2 * static_cast<double>(qkv_of_norms(*this));
}

double TransformerShape::elementwise_backward() const {
    const auto h = static_cast<double>(hidden_size);
    const auto f = static_cast<double>(ffn_hidden_size);
    // A norm reads its input and dy and writes dx; gradients of the residual are added as in the
    // forward; the activation reads its inputs and dy and writes the gradients of its inputs.
    return norms_per_layer * 3 * h + 2 * 3 * h + rotary(*this) + (gated_mlp ? 5 : 3) * f +
           3 * static_cast<double>(qkv_of_norms(*this));
}

int64_t TransformerShape::saved_bytes(int64_t element_bytes) const {
    // The residual stream before and, where the MLP reads it, after attention, what linear layers
    // read of it through norms, and sublayer outputs that are normalised.
    const int64_t before_linear = norms_before_linear(*this);
    const int64_t outputs = norms_per_layer > before_linear ? 2 : 0;
    const int64_t residual = parallel_residual ? 1 : 2;
    const int64_t elements = (residual + before_linear + outputs) * hidden_size + qkv(*this) +
                             qkv_of_norms(*this) + num_attention_heads * head_size +
                             (gated_mlp ? 3 : 2) * ffn_hidden_size;
    const int64_t statistics =
        norms_per_layer * (layer_norm ? 2 : 1) + num_attention_heads + normed_vectors(*this);
    return elements * element_bytes + statistics * kStatistic;
}

int64_t TransformerShape::recomputed_bytes(Recompute recompute, int64_t element_bytes) const {
    if (recompute == Recompute::none) return 0;
    if (recompute == Recompute::full) return saved_bytes(element_bytes);
    const int64_t norms = norms_before_linear(*this);
    return (norms * hidden_size + qkv_of_norms(*this) + ffn_hidden_size) * element_bytes +
           (norms * (layer_norm ? 2 : 1) + normed_vectors(*this)) * kStatistic;
}

double TransformerShape::elementwise_recompute() const {
    return static_cast<double>(norms_before_linear(*this) * 2 * hidden_size +
                               2 * qkv_of_norms(*this) + (gated_mlp ? 3 : 2) * ffn_hidden_size);
}

int64_t TransformerShape::for_weight_bytes(int64_t element_bytes) const {
    return ((parallel_residual ? 3 : 4) * hidden_size + qkv(*this) + qkv_of_norms(*this) +
            (gated_mlp ? 2 : 1) * ffn_hidden_size) *
           element_bytes;
}

}  // namespace vocabpipe

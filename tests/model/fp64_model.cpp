// SPDX-License-Identifier: Apache-2.0
#include "tests/model/fp64_model.hpp"

#include "src/model/families/families.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "tests/model/fp64_latent_attention.hpp"
#include "tests/model/fp64_moe.hpp"

namespace vocabpipe::testing {

namespace {

using namespace fp64;

/// What a depth of multi-token prediction leaves for its backward.
struct DepthTrace {
    Rows embedded, hidden, both, out;
};

/// Columns [first, first + count) of all rows.
Rows columns(const Rows& rows, size_t first, size_t count) {
    Rows part;
    for (const Vector& row : rows) {
        const auto begin = row.begin() + static_cast<std::ptrdiff_t>(first);
        part.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
    }
    return part;
}

/// Rows [first, first + count).
Rows rows_from(const Rows& rows, size_t first, size_t count) {
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(first);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

struct LayerTrace {
    Rows x, norm1, qkv_before, qkv, attention, proj, middle, norm2, fc, activated, fc_proj;
    std::optional<fp64::LatentAttention> latent;
    std::optional<fp64::Moe> moe, shared_expert;
};

/// sigmoid(g x) times what the expert makes of x.
const MoeConfig kSharedExpert{
    .experts = 1, .top_k = 1, .score = kernels::RouterScore::sigmoid, .normalize = false};

class MicrobatchStep {
public:
    MicrobatchStep(const ModelConfig& config, const Batch& batch, size_t index,
                   const Tensors& weights, Tensors* gradients)
        : config_(config),
          names_(model_family(config.family).tensors),
          tokens_(batch.tokens[index]),
          labels_(batch.labels[index]),
          g_(batch.loss_gradient[index]),
          first_visible_(batch.first_visible_of(index)),
          weights_(weights),
          wanted_(gradients != nullptr),
          sink_(gradients),
          sequences_(static_cast<size_t>(batch.sequences)),
          length_(static_cast<size_t>(batch.seq_length)) {}

    /// What the routers of experts add to the loss that run() returned.
    [[nodiscard]] double router_loss() const { return router_loss_; }
    [[nodiscard]] double least_gap() const { return least_gap_; }
    /// [layer][expert], empty without experts.
    [[nodiscard]] const std::vector<Vector>& loads() const { return loads_; }

    /// Returns the loss, then that of each depth; adds the gradients.
    Vector run() {
        const auto h = static_cast<size_t>(config_.hidden_size);
        const double scale = config_.embedding_scale;
        const Vector& wte = at(names_.embedding + ".weight");
        const Vector none;
        const Vector& wpe = config_.learned_positions ? at(names_.positions + ".weight") : none;
        Rows x(tokens_.size(), Vector(h));
        for (size_t n = 0; n < x.size(); ++n) {
            const auto token = static_cast<size_t>(tokens_[n]);
            for (size_t i = 0; i < h; ++i) {
                x[n][i] = scale * wte[token * h + i];
                if (!wpe.empty()) x[n][i] += wpe[n % length_ * h + i];
            }
        }
        const Rows embedded = x;
        std::vector<LayerTrace> layers;
        for (int l = 0; l < config_.num_layers; ++l) {
            x = layer_forward(l, x, layers);
            add_router(layers.back());
        }
        const Rows final = norm(x, names_.final_norm);
        Rows all = final;
        std::vector<LayerTrace> depth_layers;
        std::vector<DepthTrace> depths;
        for (int k = 1; k <= config_.mtp_num_layers; ++k) {
            const Rows made = depth_forward(
                k, embedded, rows_from(all, all.size() - x.size(), x.size()), depths, depth_layers);
            all.insert(all.end(), made.begin(), made.end());
            add_router(depth_layers.back());
        }
        Rows d_all(all.size(), Vector(h, 0.0));
        const Vector loss = output(all, d_all);
        if (!wanted_) return loss;

        Rows d_embedded(x.size(), Vector(h, 0.0));
        Rows dx = rows_from(d_all, d_all.size() - x.size(), x.size());
        for (int k = config_.mtp_num_layers; k > 0; --k) {
            const auto depth = static_cast<size_t>(k) - 1;
            dx = sum(depth_backward(k, dx, depths[depth], depth_layers[depth], d_embedded),
                     rows_from(d_all, depth * x.size(), x.size()));
        }
        dx = norm_gradient(dx, x, names_.final_norm);
        for (int l = config_.num_layers; l-- > 0;) {
            dx = layer_backward(l, dx, layers[static_cast<size_t>(l)]);
        }
        Vector dwte(wte.size(), 0.0);
        Vector dwpe(wpe.size(), 0.0);
        for (size_t n = 0; n < dx.size(); ++n) {
            const auto token = static_cast<size_t>(tokens_[n]);
            for (size_t i = 0; i < h; ++i) {
                dwte[token * h + i] += scale * (dx[n][i] + d_embedded[n][i]);
                if (!wpe.empty()) dwpe[n % length_ * h + i] += dx[n][i];
            }
        }
        sink_.add(names_.embedding + ".weight", dwte);
        if (!wpe.empty()) sink_.add(names_.positions + ".weight", dwpe);
        return loss;
    }

private:
    [[nodiscard]] const Vector& at(const std::string& name) const { return weights_.at(name); }
    [[nodiscard]] std::string layer_name(int layer) const {
        return names_.layers + std::to_string(layer) + ".";
    }
    [[nodiscard]] std::string depth_name(int k) const {
        return layer_name(config_.num_layers + k - 1);
    }
    /// The layer of the model that a depth's layer is like.
    [[nodiscard]] int like(int layer) const { return std::min(layer, config_.num_layers - 1); }
    [[nodiscard]] Attention attention(int layer) const {
        const double scale = config_.attention_scale;
        const auto size = static_cast<size_t>(config_.head_size());
        return {.sequences = sequences_,
                .length = length_,
                .heads = static_cast<size_t>(config_.num_attention_heads),
                .kv_heads = static_cast<size_t>(config_.kv_heads()),
                .size = size,
                .scale = scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(size)),
                .softcap = config_.attention_softcap,
                .window = static_cast<size_t>(config_.window(like(layer))),
                .first_visible = first_visible_,
                .rotated = static_cast<size_t>(config_.rotary_size()),
                .sinks = has_sinks() ? std::span<const double>(at(sinks_name(layer)))
                                     : std::span<const double>()};
    }

    [[nodiscard]] bool has_sinks() const { return config_.softmax_type == SoftmaxType::learnable; }
    [[nodiscard]] std::string sinks_name(int layer) const {
        return layer_name(layer) + names_.sinks;
    }

    /// Rotary positions of a layer.
    [[nodiscard]] Rotary rotary(int layer) const {
        const bool own = config_.windowed_rope && config_.window(layer) > 0;
        const Rope& rope = own ? *config_.windowed_rope : config_.rope;
        const bool beyond = length_ > static_cast<size_t>(rope.original_positions);
        const auto size = static_cast<size_t>(config_.rotary_dimension());
        double theta = rope.theta;
        if (rope.scaling == RopeScaling::dynamic && beyond) {
            const double d = static_cast<double>(size);
            const double times =
                static_cast<double>(length_) / static_cast<double>(rope.original_positions);
            theta *= std::pow(rope.factor * times - (rope.factor - 1), d / (d - 2));
        }
        Rotary rotary = plain_rotary(theta, size);
        for (size_t i = 0; i < rotary.frequencies.size(); ++i) {
            double& frequency = rotary.frequencies[i];
            if (rope.scaling == RopeScaling::linear) frequency /= rope.factor;
            if (rope.scaling == RopeScaling::longrope) {
                frequency /= beyond ? rope.long_factors[i] : rope.short_factors[i];
            }
        }
        if (rope.scaling == RopeScaling::longrope) {
            const auto trained = static_cast<double>(rope.original_positions);
            rotary.amplitude = std::sqrt(1 + std::log(rope.factor) / std::log(trained));
        }
        return rotary;
    }

    [[nodiscard]] MlpActivation activation() const { return {config_.activation, config_.gated}; }

    // --- linear layers and norms by name

    [[nodiscard]] Rows linear_of(const Rows& x, const std::string& name, bool bias) const {
        return linear(x, at(name + ".weight"), bias ? at(name + ".bias") : Vector());
    }
    Rows linear_gradient_of(const Rows& dy, const Rows& x, const std::string& name, bool bias) {
        return linear_gradient(dy, x, at(name + ".weight"), name, bias, sink_);
    }
    [[nodiscard]] RmsNorm rms_norm(const std::string& name) const {
        return {at(name + ".weight"), config_.norm_weight_offset, config_.norm_epsilon};
    }
    [[nodiscard]] Rows norm(const Rows& x, const std::string& name) const {
        if (config_.normalization == Normalization::layer_norm) {
            return layer_norm(x, at(name + ".weight"), at(name + ".bias"), config_.norm_epsilon);
        }
        Rows y = x;
        for (Vector& row : y) rms_norm(name).forward(row.data());
        return y;
    }
    Rows norm_gradient(const Rows& dy, const Rows& x, const std::string& name) {
        if (config_.normalization == Normalization::layer_norm) {
            return layer_norm_gradient(dy, x, at(name + ".weight"), config_.norm_epsilon, name,
                                       sink_);
        }
        Rows dx = dy;
        Vector dgamma(x[0].size(), 0.0);
        for (size_t n = 0; n < x.size(); ++n) {
            rms_norm(name).gradient(dx[n].data(), x[n].data(), dgamma);
        }
        sink_.add(name + ".weight", dgamma);
        return dx;
    }
    /// Where each vector of q, then of k, that has a norm of its own begins, and the norm's name.
    template <typename Body>
    void each_normed(const Attention& of, Body&& body) const {
        if (!config_.qk_norm_by_head) {
            body(0, names_.q_norm);
            body(of.heads * of.size, names_.k_norm);
            return;
        }
        for (size_t head = 0; head < of.heads + of.kv_heads; ++head) {
            body(head * of.size, head < of.heads ? names_.q_norm : names_.k_norm);
        }
    }
    /// What attention or the MLP reads.
    [[nodiscard]] Rows pre_norm(const Rows& x, const std::string& name) const {
        return config_.pre_norms ? norm(x, name) : x;
    }
    Rows pre_norm_gradient(const Rows& dy, const Rows& x, const std::string& name) {
        return config_.pre_norms ? norm_gradient(dy, x, name) : dy;
    }

    [[nodiscard]] double weight_of_next_tokens() const {
        return std::accumulate(g_.begin(), g_.begin() + std::ssize(tokens_), 0.0);
    }
    void add_router(const LayerTrace& layer) {
        loads_.push_back(layer.moe ? layer.moe->load() : Vector());
        if (!layer.moe) return;
        router_loss_ += layer.moe->router_loss();
        least_gap_ = std::min(least_gap_, layer.moe->least_gap());
    }
    /// What the MLP reads, before its norm.
    [[nodiscard]] const Rows& mlp_input(const LayerTrace& t) const {
        return config_.parallel_residual ? t.x : t.middle;
    }

    [[nodiscard]] fp64::LatentAttention latent_attention(int layer) const {
        constexpr double kEpsilon = 1e-6;  // whatever the model's is
        const std::string name = layer_name(layer);
        const LatentConfig& latent = config_.latent;
        return {{.heads = static_cast<size_t>(config_.num_attention_heads),
                 .q_rank = static_cast<size_t>(latent.q_rank),
                 .kv_rank = static_cast<size_t>(latent.kv_rank),
                 .key_size = static_cast<size_t>(latent.key_size),
                 .rope_size = static_cast<size_t>(latent.rope_size),
                 .value_size = static_cast<size_t>(latent.value_size)},
                attention(layer),
                rotary(like(layer)),
                kEpsilon,
                {.down = name + names_.qkv_down,
                 .q_norm = name + names_.q_down_norm,
                 .q_up = name + names_.q_up,
                 .kv_norm = name + names_.kv_down_norm,
                 .kv_up = name + names_.kv_up},
                weights_};
    }

    /// From t.norm1 to t.attention.
    void heads_forward(int layer, const Attention& of, LayerTrace& t) const {
        const std::string name = layer_name(layer);
        t.qkv_before = linear_of(t.norm1, name + names_.qkv, config_.qkv_bias);
        t.qkv = t.qkv_before;
        if (config_.qk_norm) {
            for (Vector& row : t.qkv) {
                each_normed(of, [&](size_t column, const std::string& gamma) {
                    rms_norm(name + gamma).forward(&row[column]);
                });
            }
        }
        if (config_.has_rope(like(layer))) of.rotate(t.qkv, rotary(like(layer)), 1);
        t.attention = of.forward(t.qkv);
    }
    /// The gradient of t.norm1 from that of t.attention.
    Rows heads_gradient(int layer, const Attention& of, const LayerTrace& t, const Rows& dheads) {
        const std::string name = layer_name(layer);
        Vector dsinks(of.sinks.size(), 0.0);
        Rows d = of.gradient(dheads, t.qkv, dsinks);
        if (has_sinks()) sink_.add(sinks_name(layer), dsinks);
        if (config_.has_rope(like(layer))) of.rotate(d, rotary(like(layer)), -1);
        if (config_.qk_norm) {
            Vector dq(at(name + names_.q_norm + ".weight").size(), 0.0);
            Vector dk(at(name + names_.k_norm + ".weight").size(), 0.0);
            for (size_t n = 0; n < d.size(); ++n) {
                each_normed(of, [&](size_t column, const std::string& gamma) {
                    rms_norm(name + gamma)
                        .gradient(&d[n][column], &t.qkv_before[n][column],
                                  column < of.heads * of.size ? dq : dk);
                });
            }
            sink_.add(name + names_.q_norm + ".weight", dq);
            sink_.add(name + names_.k_norm + ".weight", dk);
        }
        return linear_gradient_of(d, t.norm1, name + names_.qkv, config_.qkv_bias);
    }

    Rows layer_forward(int layer, const Rows& x, std::vector<LayerTrace>& traces) const {
        const std::string name = layer_name(layer);
        const Attention of = attention(layer);
        LayerTrace t;
        t.x = x;
        t.norm1 = pre_norm(x, name + names_.attention_norm);
        if (config_.has_latents()) {
            t.latent.emplace(latent_attention(layer));
            t.attention = t.latent->forward(t.norm1);
        } else {
            heads_forward(layer, of, t);
        }
        t.proj = linear_of(t.attention, name + names_.proj, config_.attention_output_bias);
        t.middle =
            sum(x, config_.post_norms ? norm(t.proj, name + names_.post_attention_norm) : t.proj);
        t.norm2 = pre_norm(mlp_input(t), name + names_.mlp_norm);
        if (config_.moe.in_layer(like(layer))) {
            t.moe.emplace(config_.moe, activation(),
                          fp64::MoeNames{.router = name + names_.router,
                                         .gate_up = name + names_.experts + "gate_up",
                                         .down = name + names_.experts + "down",
                                         .correction_bias = config_.moe.correction_bias
                                                                ? name + names_.correction_bias
                                                                : ""},
                          weights_, weight_of_next_tokens());
            t.fc_proj = t.moe->forward(t.norm2);
            if (config_.moe.shared_expert && !config_.moe.shared_gate) {
                t.fc = linear_of(t.norm2, name + names_.shared_expert + "gate_up_proj", false);
                t.activated = activation().forward(t.fc);
                t.fc_proj = sum(t.fc_proj,
                                linear_of(t.activated,
                                          name + names_.shared_expert + names_.expert_down, false));
            } else if (config_.moe.shared_expert) {
                t.shared_expert.emplace(
                    kSharedExpert, activation(),
                    fp64::MoeNames{.router = name + names_.shared_gate,
                                   .gate_up = name + names_.shared_expert + "gate_up",
                                   .down = name + names_.shared_expert + "down"},
                    weights_, 0.0);
                t.fc_proj = sum(t.fc_proj, t.shared_expert->forward(t.norm2));
            }
        } else {
            t.fc = linear_of(t.norm2, name + names_.fc, config_.mlp_bias);
            t.activated = activation().forward(t.fc);
            t.fc_proj = linear_of(t.activated, name + names_.fc_proj, config_.mlp_bias);
        }
        Rows out = sum(t.middle, config_.post_norms ? norm(t.fc_proj, name + names_.post_mlp_norm)
                                                    : t.fc_proj);
        traces.push_back(std::move(t));
        return out;
    }

    Rows layer_backward(int layer, const Rows& dy, const LayerTrace& t) {
        const std::string name = layer_name(layer);
        const Attention of = attention(layer);
        Rows d =
            config_.post_norms ? norm_gradient(dy, t.fc_proj, name + names_.post_mlp_norm) : dy;
        if (t.moe) {
            const Rows dy_of_experts = d;
            d = t.moe->gradient(dy_of_experts, sink_);
            if (t.shared_expert) d = sum(d, t.shared_expert->gradient(dy_of_experts, sink_));
            if (!t.fc.empty()) {
                const std::string shared = name + names_.shared_expert;
                Rows of = linear_gradient_of(dy_of_experts, t.activated,
                                             shared + names_.expert_down, false);
                of = activation().gradient(of, t.fc);
                d = sum(d, linear_gradient_of(of, t.norm2, shared + "gate_up_proj", false));
            }
        } else {
            d = linear_gradient_of(d, t.activated, name + names_.fc_proj, config_.mlp_bias);
            d = activation().gradient(d, t.fc);
            d = linear_gradient_of(d, t.norm2, name + names_.fc, config_.mlp_bias);
        }
        const Rows dmiddle = sum(dy, pre_norm_gradient(d, mlp_input(t), name + names_.mlp_norm));
        d = config_.post_norms ? norm_gradient(dmiddle, t.proj, name + names_.post_attention_norm)
            : config_.parallel_residual ? dy
                                        : dmiddle;
        d = linear_gradient_of(d, t.attention, name + names_.proj, config_.attention_output_bias);
        d = t.latent ? t.latent->gradient(d, sink_) : heads_gradient(layer, of, t, d);
        return sum(dmiddle, pre_norm_gradient(d, t.x, name + names_.attention_norm));
    }

    /// h^k from h^{k-1}.
    Rows depth_forward(int k, const Rows& embedded, const Rows& hidden,
                       std::vector<DepthTrace>& traces, std::vector<LayerTrace>& layers) const {
        const std::string name = depth_name(k);
        DepthTrace t;
        t.hidden = hidden;
        for (size_t n = 0; n < embedded.size(); ++n) {
            const bool known = n % length_ + static_cast<size_t>(k) < length_;
            t.embedded.push_back(known ? embedded[n + static_cast<size_t>(k)]
                                       : Vector(embedded[n].size(), 0.0));
        }
        t.both = norm(t.embedded, name + "enorm");
        const Rows second = norm(t.hidden, name + "hnorm");
        for (size_t n = 0; n < second.size(); ++n) {
            t.both[n].insert(t.both[n].end(), second[n].begin(), second[n].end());
        }
        t.out = layer_forward(config_.num_layers + k - 1,
                              linear_of(t.both, name + "eh_proj", false), layers);
        Rows made = norm(t.out, name + "shared_head.norm");
        traces.push_back(std::move(t));
        return made;
    }

    /// The gradient of h^{k-1}; adds that of the embedded tokens.
    Rows depth_backward(int k, const Rows& dy, const DepthTrace& t, const LayerTrace& layer,
                        Rows& d_embedded) {
        const std::string name = depth_name(k);
        const auto h = static_cast<size_t>(config_.hidden_size);
        Rows d = norm_gradient(dy, t.out, name + "shared_head.norm");
        d = layer_backward(config_.num_layers + k - 1, d, layer);
        d = linear_gradient_of(d, t.both, name + "eh_proj", false);
        const Rows of_embedded = norm_gradient(columns(d, 0, h), t.embedded, name + "enorm");
        for (size_t n = 0; n < of_embedded.size(); ++n) {
            if (n % length_ + static_cast<size_t>(k) >= length_) continue;
            Vector& to = d_embedded[n + static_cast<size_t>(k)];
            for (size_t i = 0; i < h; ++i) to[i] += of_embedded[n][i];
        }
        return norm_gradient(columns(d, h, h), t.hidden, name + "hnorm");
    }

    /// Projection, softmax and loss: of the next token, then of each depth.
    Vector output(const Rows& x, Rows& dx) {
        const std::string name =
            config_.tied ? names_.embedding + ".weight" : names_.output + ".weight";
        const Vector& w = at(name);
        const double cap = config_.logit_softcap;
        const auto h = static_cast<size_t>(config_.hidden_size);
        const auto vocab = static_cast<size_t>(config_.vocab_size);
        const double smoothing = config_.label_smoothing;
        const double uniform = smoothing / static_cast<double>(vocab);
        Vector dw(w.size(), 0.0);
        Vector totals(x.size() / tokens_.size(), 0.0);
        for (size_t n = 0; n < x.size(); ++n) {
            if (labels_[n] < 0) continue;
            Vector z(vocab);
            double max = -INFINITY;
            double mean = 0;
            for (size_t j = 0; j < vocab; ++j) {
                z[j] = dot(x[n].data(), &w[j * h], h);
                if (cap > 0) z[j] = cap * std::tanh(z[j] / cap);
                max = std::max(max, z[j]);
                mean += z[j];
            }
            double sum = 0;
            for (const double v : z) sum += std::exp(v - max);
            const double log_z = max + std::log(sum);
            const auto label = static_cast<size_t>(labels_[n]);
            const double g = g_[n];
            totals[n / tokens_.size()] += g * (log_z - (1 - smoothing) * z[label] - uniform * mean +
                                               config_.z_loss * log_z * log_z);
            for (size_t j = 0; j < vocab; ++j) {
                const double p = std::exp(z[j] - log_z);
                const double target = (j == label ? 1 - smoothing : 0.0) + uniform;
                double dz = g * (p * (1 + 2 * config_.z_loss * log_z) - target);
                if (cap > 0) dz *= 1 - (z[j] / cap) * (z[j] / cap);
                for (size_t i = 0; i < h; ++i) {
                    dx[n][i] += dz * w[j * h + i];
                    dw[j * h + i] += dz * x[n][i];
                }
            }
        }
        sink_.add(config_.tied ? name + " (output)" : name, dw);
        return totals;
    }

    const ModelConfig& config_;
    const TensorNames& names_;
    const std::vector<int32_t>& tokens_;
    const std::vector<int32_t>& labels_;
    const std::vector<float>& g_;
    std::span<const int32_t> first_visible_;
    const Tensors& weights_;
    bool wanted_;
    GradientSink sink_;
    size_t sequences_, length_;
    std::vector<Vector> loads_;
    double router_loss_ = 0;
    double least_gap_ = INFINITY;
};

}  // namespace

Fp64Step fp64_step(const ModelConfig& config, const Batch& batch, const Tensors& weights) {
    Fp64Step step;
    const size_t microbatches = batch.tokens.size();
    step.depth_losses.resize(static_cast<size_t>(config.mtp_num_layers) * microbatches);
    for (size_t j = 0; j < batch.tokens.size(); ++j) {
        MicrobatchStep of(config, batch, j, weights, &step.gradients);
        const Vector losses = of.run();
        step.losses.push_back(losses.front());
        for (size_t k = 1; k < losses.size(); ++k) {
            step.depth_losses[(k - 1) * microbatches + j] = losses[k];
        }
        step.router_loss += of.router_loss();
        step.least_gap = std::min(step.least_gap, of.least_gap());
        step.loads.resize(of.loads().size());
        for (size_t l = 0; l < step.loads.size(); ++l) {
            step.loads[l] = j == 0 ? of.loads()[l] : sum({step.loads[l]}, {of.loads()[l]})[0];
        }
    }
    return step;
}

double fp64_loss(const ModelConfig& config, const Batch& batch, const Tensors& weights) {
    double total = 0;
    for (size_t j = 0; j < batch.tokens.size(); ++j) {
        MicrobatchStep of(config, batch, j, weights, nullptr);
        for (const double loss : of.run()) total += loss;
        total += of.router_loss();
    }
    return total;
}

}  // namespace vocabpipe::testing

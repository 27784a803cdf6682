// SPDX-License-Identifier: Apache-2.0
#include "tests/model/fp64_model.hpp"

#include "src/model/families/families.hpp"

#include <cmath>
#include <numbers>
#include <utility>

namespace vocabpipe::testing {

namespace {

using Vector = std::vector<double>;
using Rows = std::vector<Vector>;  ///< [token][feature]

double dot(const double* a, const double* b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
}

/// Adds to a named gradient; absent when only the loss is wanted.
class GradientSink {
public:
    explicit GradientSink(Tensors* into) : into_(into) {}
    void add(const std::string& name, const Vector& values) {
        if (into_ == nullptr) return;
        Vector& sum = (*into_)[name];
        sum.resize(values.size(), 0.0);
        for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
    }

private:
    Tensors* into_;
};

// --- operators: value and gradient
// ---------------------------------------------------------------

/// y = w x + b per token; w (out, in); b empty: none.
Rows linear(const Rows& x, const Vector& w, const Vector& b) {
    const size_t in = x[0].size();
    Rows y(x.size(), Vector(w.size() / in));
    for (size_t n = 0; n < x.size(); ++n) {
        for (size_t o = 0; o < y[n].size(); ++o) {
            y[n][o] = (b.empty() ? 0.0 : b[o]) + dot(x[n].data(), &w[o * in], in);
        }
    }
    return y;
}

Rows linear_gradient(const Rows& dy, const Rows& x, const Vector& w, const std::string& name,
                     bool bias, GradientSink& sink) {
    const size_t out = dy[0].size();
    const size_t in = x[0].size();
    Rows dx(x.size(), Vector(in, 0.0));
    Vector dw(out * in, 0.0);
    Vector db(out, 0.0);
    for (size_t n = 0; n < x.size(); ++n) {
        for (size_t o = 0; o < out; ++o) {
            db[o] += dy[n][o];
            for (size_t i = 0; i < in; ++i) {
                dw[o * in + i] += dy[n][o] * x[n][i];
                dx[n][i] += dy[n][o] * w[o * in + i];
            }
        }
    }
    sink.add(name + ".weight", dw);
    if (bias) sink.add(name + ".bias", db);
    return dx;
}

Vector normalised(const Vector& x, double epsilon, double& inverse_std) {
    const auto h = static_cast<double>(x.size());
    double mean = 0;
    for (const double v : x) mean += v / h;
    double variance = 0;
    for (const double v : x) variance += (v - mean) * (v - mean) / h;
    inverse_std = 1 / std::sqrt(variance + epsilon);
    Vector z(x.size());
    for (size_t i = 0; i < x.size(); ++i) z[i] = (x[i] - mean) * inverse_std;
    return z;
}

Rows layer_norm(const Rows& x, const Vector& gamma, const Vector& beta, double epsilon) {
    Rows y = x;
    for (Vector& row : y) {
        double inverse_std = 0;
        const Vector z = normalised(row, epsilon, inverse_std);
        for (size_t i = 0; i < row.size(); ++i) row[i] = gamma[i] * z[i] + beta[i];
    }
    return y;
}

Rows layer_norm_gradient(const Rows& dy, const Rows& x, const Vector& gamma, double epsilon,
                         const std::string& name, GradientSink& sink) {
    const size_t h = gamma.size();
    Rows dx(x.size(), Vector(h));
    Vector dgamma(h, 0.0);
    Vector dbeta(h, 0.0);
    for (size_t n = 0; n < x.size(); ++n) {
        double inverse_std = 0;
        const Vector z = normalised(x[n], epsilon, inverse_std);
        Vector dz(h);
        for (size_t i = 0; i < h; ++i) {
            dgamma[i] += dy[n][i] * z[i];
            dbeta[i] += dy[n][i];
            dz[i] = dy[n][i] * gamma[i];
        }
        // z is orthogonal to the ones and has constant length (up to epsilon): remove both parts.
        double mean = 0;
        for (const double v : dz) mean += v / static_cast<double>(h);
        const double along = dot(dz.data(), z.data(), h) / static_cast<double>(h);
        for (size_t i = 0; i < h; ++i) dx[n][i] = inverse_std * (dz[i] - mean - along * z[i]);
    }
    sink.add(name + ".weight", dgamma);
    sink.add(name + ".bias", dbeta);
    return dx;
}

/// RMSNorm of `size` elements from `first` on: y = (gamma + offset) x / rms.
struct RmsNorm {
    const Vector& gamma;
    double offset, epsilon;

    [[nodiscard]] double inverse_rms(const double* x) const {
        return 1 / std::sqrt(dot(x, x, gamma.size()) / static_cast<double>(gamma.size()) + epsilon);
    }
    void forward(double* x) const {
        const double r = inverse_rms(x);
        for (size_t i = 0; i < gamma.size(); ++i) x[i] *= (gamma[i] + offset) * r;
    }
    /// dy becomes dx.
    void gradient(double* dy, const double* x, Vector& dgamma) const {
        const double r = inverse_rms(x);
        double along = 0;
        for (size_t i = 0; i < gamma.size(); ++i) {
            dgamma[i] += dy[i] * x[i] * r;
            dy[i] *= gamma[i] + offset;
            along += dy[i] * x[i] * r / static_cast<double>(gamma.size());
        }
        for (size_t i = 0; i < gamma.size(); ++i) dy[i] = r * (dy[i] - along * x[i] * r);
    }
};

/// An activation and its derivative.
std::pair<double, double> activate(kernels::Activation kind, double x) {
    if (kind == kernels::Activation::silu) {
        const double s = 1 / (1 + std::exp(-x));
        return {x * s, s + x * s * (1 - s)};
    }
    const double root = std::sqrt(2 / std::numbers::pi);
    const double t = std::tanh(root * (x + 0.044715 * x * x * x));
    return {x / 2 * (1 + t), (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x)};
}

/// The MLP's middle: activation(x), or activation(gate) * up of rows gate | up.
Rows activated(const ModelConfig& config, const Rows& x) {
    const auto f = static_cast<size_t>(config.ffn_hidden_size);
    Rows y(x.size(), Vector(f));
    for (size_t n = 0; n < x.size(); ++n) {
        for (size_t i = 0; i < f; ++i) {
            y[n][i] = activate(config.activation, x[n][i]).first * (config.gated ? x[n][f + i] : 1);
        }
    }
    return y;
}

Rows activated_gradient(const ModelConfig& config, const Rows& dy, const Rows& x) {
    const auto f = static_cast<size_t>(config.ffn_hidden_size);
    Rows dx = x;
    for (size_t n = 0; n < x.size(); ++n) {
        for (size_t i = 0; i < f; ++i) {
            const auto [value, slope] = activate(config.activation, x[n][i]);
            dx[n][i] = dy[n][i] * slope * (config.gated ? x[n][f + i] : 1);
            if (config.gated) dx[n][f + i] = dy[n][i] * value;
        }
    }
    return dx;
}

/// Causal attention of one microbatch. qkv: columns q | k | v, the heads side by side in each.
struct Attention {
    size_t sequences, length, heads, kv_heads, size;  ///< size: of a head
    double scale, softcap;
    size_t window = 0;                            ///< 0: none
    std::span<const int32_t> first_visible = {};  ///< of all tokens, or none

    [[nodiscard]] size_t query_column(size_t head) const { return head * size; }
    [[nodiscard]] size_t key_column(size_t head) const {
        return heads * size + head / (heads / kv_heads) * size;
    }
    [[nodiscard]] size_t value_column(size_t head) const {
        return key_column(head) + kv_heads * size;
    }
    [[nodiscard]] bool sees(size_t first, size_t i, size_t j) const {
        const bool of_document =
            first_visible.empty() || j >= static_cast<size_t>(first_visible[first + i]);
        return j <= i && (window == 0 || i - j < window) && of_document;
    }
    [[nodiscard]] double score(const Rows& qkv, size_t first, size_t i, size_t j,
                               size_t head) const {
        const double plain = scale * dot(&qkv[first + i][query_column(head)],
                                         &qkv[first + j][key_column(head)], size);
        return softcap > 0 ? softcap * std::tanh(plain / softcap) : plain;
    }
    /// Attention weights of query token i (index within the sequence) over keys 0..i.
    [[nodiscard]] Vector weights(const Rows& qkv, size_t first, size_t i, size_t head) const {
        Vector p(i + 1, 0.0);
        double sum = 0;
        for (size_t j = 0; j <= i; ++j) {
            if (sees(first, i, j)) p[j] = std::exp(score(qkv, first, i, j, head));
            sum += p[j];
        }
        for (double& v : p) v /= sum;
        return p;
    }

    [[nodiscard]] Rows forward(const Rows& qkv) const {
        Rows out(qkv.size(), Vector(heads * size, 0.0));
        each([&](size_t first, size_t i, size_t head) {
            const Vector p = weights(qkv, first, i, head);
            for (size_t j = 0; j <= i; ++j) {
                for (size_t d = 0; d < size; ++d) {
                    out[first + i][head * size + d] +=
                        p[j] * qkv[first + j][value_column(head) + d];
                }
            }
        });
        return out;
    }

    [[nodiscard]] Rows gradient(const Rows& dout, const Rows& qkv) const {
        Rows dqkv(qkv.size(), Vector(qkv[0].size(), 0.0));
        each([&](size_t first, size_t i, size_t head) {
            const size_t q = query_column(head);
            const size_t k = key_column(head);
            const size_t v = value_column(head);
            const Vector p = weights(qkv, first, i, head);
            const double* d = &dout[first + i][head * size];
            Vector dp(i + 1);
            double mean = 0;
            for (size_t j = 0; j <= i; ++j) {
                dp[j] = dot(d, &qkv[first + j][v], size);
                mean += p[j] * dp[j];
            }
            for (size_t j = 0; j <= i; ++j) {
                double ds = p[j] * (dp[j] - mean) * scale;
                if (softcap > 0) {
                    const double t = score(qkv, first, i, j, head) / softcap;
                    ds *= 1 - t * t;
                }
                for (size_t c = 0; c < size; ++c) {
                    dqkv[first + j][v + c] += p[j] * d[c];
                    dqkv[first + i][q + c] += ds * qkv[first + j][k + c];
                    dqkv[first + j][k + c] += ds * qkv[first + i][q + c];
                }
            }
        });
        return dqkv;
    }

    /// Rotates the heads of q and k by their positions; direction -1: back.
    void rotate(Rows& qkv, double theta, double direction) const {
        const size_t half = size / 2;
        for (size_t n = 0; n < qkv.size(); ++n) {
            for (size_t head = 0; head < heads + kv_heads; ++head) {
                for (size_t i = 0; i < half; ++i) {
                    const double angle =
                        direction * static_cast<double>(n % length) *
                        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(size));
                    double& low = qkv[n][head * size + i];
                    double& high = qkv[n][head * size + half + i];
                    const double a = low;
                    low = a * std::cos(angle) - high * std::sin(angle);
                    high = high * std::cos(angle) + a * std::sin(angle);
                }
            }
        }
    }

private:
    template <typename Body>
    void each(Body&& body) const {
        for (size_t s = 0; s < sequences; ++s) {
            for (size_t i = 0; i < length; ++i) {
                for (size_t head = 0; head < heads; ++head) body(s * length, i, head);
            }
        }
    }
};

Rows sum(const Rows& a, const Rows& b) {
    Rows out = a;
    for (size_t n = 0; n < a.size(); ++n) {
        for (size_t i = 0; i < a[n].size(); ++i) out[n][i] += b[n][i];
    }
    return out;
}

// --- the model
// -----------------------------------------------------------------------------------

struct LayerTrace {
    Rows x, norm1, qkv_before, qkv, attention, proj, middle, norm2, fc, activated, fc_proj;
};

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

    /// Returns the loss; adds the gradients.
    double run() {
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
        std::vector<LayerTrace> layers;
        for (int l = 0; l < config_.num_layers; ++l) x = layer_forward(l, x, layers);
        const Rows final = norm(x, names_.final_norm);
        Rows dx(final.size(), Vector(h, 0.0));
        const double loss = output(final, dx);
        if (!wanted_) return loss;

        dx = norm_gradient(dx, x, names_.final_norm);
        for (int l = config_.num_layers; l-- > 0;) {
            dx = layer_backward(l, dx, layers[static_cast<size_t>(l)]);
        }
        Vector dwte(wte.size(), 0.0);
        Vector dwpe(wpe.size(), 0.0);
        for (size_t n = 0; n < dx.size(); ++n) {
            const auto token = static_cast<size_t>(tokens_[n]);
            for (size_t i = 0; i < h; ++i) {
                dwte[token * h + i] += scale * dx[n][i];
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
                .window = static_cast<size_t>(config_.window(layer)),
                .first_visible = first_visible_};
    }

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
    /// Each head of q, then of k, and the name of its norm.
    template <typename Body>
    void each_head(const Attention& of, Body&& body) const {
        for (size_t head = 0; head < of.heads + of.kv_heads; ++head) {
            body(head * of.size, head < of.heads ? names_.q_norm : names_.k_norm);
        }
    }

    Rows layer_forward(int layer, const Rows& x, std::vector<LayerTrace>& traces) const {
        const std::string name = layer_name(layer);
        const Attention of = attention(layer);
        LayerTrace t;
        t.x = x;
        t.norm1 = norm(x, name + names_.attention_norm);
        t.qkv_before = linear_of(t.norm1, name + names_.qkv, config_.qkv_bias);
        t.qkv = t.qkv_before;
        if (config_.qk_norm) {
            for (Vector& row : t.qkv) {
                each_head(of, [&](size_t column, const std::string& head) {
                    rms_norm(name + head).forward(&row[column]);
                });
            }
        }
        if (!config_.learned_positions) of.rotate(t.qkv, config_.rope.theta, 1);
        t.attention = of.forward(t.qkv);
        t.proj = linear_of(t.attention, name + names_.proj, config_.attention_output_bias);
        t.middle =
            sum(x, config_.post_norms ? norm(t.proj, name + names_.post_attention_norm) : t.proj);
        t.norm2 = norm(t.middle, name + names_.mlp_norm);
        t.fc = linear_of(t.norm2, name + names_.fc, config_.mlp_bias);
        t.activated = activated(config_, t.fc);
        t.fc_proj = linear_of(t.activated, name + names_.fc_proj, config_.mlp_bias);
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
        d = linear_gradient_of(d, t.activated, name + names_.fc_proj, config_.mlp_bias);
        d = activated_gradient(config_, d, t.fc);
        d = linear_gradient_of(d, t.norm2, name + names_.fc, config_.mlp_bias);
        const Rows dmiddle = sum(dy, norm_gradient(d, t.middle, name + names_.mlp_norm));
        d = config_.post_norms ? norm_gradient(dmiddle, t.proj, name + names_.post_attention_norm)
                               : dmiddle;
        d = linear_gradient_of(d, t.attention, name + names_.proj, config_.attention_output_bias);
        d = of.gradient(d, t.qkv);
        if (!config_.learned_positions) of.rotate(d, config_.rope.theta, -1);
        if (config_.qk_norm) {
            Vector dq(of.size, 0.0);
            Vector dk(of.size, 0.0);
            for (size_t n = 0; n < d.size(); ++n) {
                each_head(of, [&](size_t column, const std::string& head) {
                    rms_norm(name + head)
                        .gradient(&d[n][column], &t.qkv_before[n][column],
                                  column < of.heads * of.size ? dq : dk);
                });
            }
            sink_.add(name + names_.q_norm + ".weight", dq);
            sink_.add(name + names_.k_norm + ".weight", dk);
        }
        d = linear_gradient_of(d, t.norm1, name + names_.qkv, config_.qkv_bias);
        return sum(dmiddle, norm_gradient(d, t.x, name + names_.attention_norm));
    }

    /// Projection, softmax and loss.
    double output(const Rows& x, Rows& dx) {
        const std::string name =
            config_.tied ? names_.embedding + ".weight" : names_.output + ".weight";
        const Vector& w = at(name);
        const double cap = config_.logit_softcap;
        const auto h = static_cast<size_t>(config_.hidden_size);
        const auto vocab = static_cast<size_t>(config_.vocab_size);
        const double smoothing = config_.label_smoothing;
        const double uniform = smoothing / static_cast<double>(vocab);
        Vector dw(w.size(), 0.0);
        double total = 0;
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
            total += g * (log_z - (1 - smoothing) * z[label] - uniform * mean +
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
        return total;
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
};

}  // namespace

Fp64Step fp64_step(const ModelConfig& config, const Batch& batch, const Tensors& weights) {
    Fp64Step step;
    for (size_t j = 0; j < batch.tokens.size(); ++j) {
        step.losses.push_back(MicrobatchStep(config, batch, j, weights, &step.gradients).run());
    }
    return step;
}

double fp64_loss(const ModelConfig& config, const Batch& batch, const Tensors& weights) {
    double total = 0;
    for (size_t j = 0; j < batch.tokens.size(); ++j) {
        total += MicrobatchStep(config, batch, j, weights, nullptr).run();
    }
    return total;
}

}  // namespace vocabpipe::testing

// SPDX-License-Identifier: Apache-2.0
#include "tests/model/fp64_gpt.hpp"

#include <cmath>
#include <numbers>

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

/// y = w x + b per token; w (out, in).
Rows linear(const Rows& x, const Vector& w, const Vector& b) {
    Rows y(x.size(), Vector(b.size()));
    for (size_t n = 0; n < x.size(); ++n) {
        for (size_t o = 0; o < b.size(); ++o) {
            y[n][o] = b[o] + dot(x[n].data(), &w[o * x[n].size()], x[n].size());
        }
    }
    return y;
}

Rows linear_gradient(const Rows& dy, const Rows& x, const Vector& w, const std::string& name,
                     GradientSink& sink) {
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
    sink.add(name + ".bias", db);
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

double gelu_inner(double x) {
    return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
}

Rows gelu(const Rows& x) {
    Rows y = x;
    for (Vector& row : y) {
        for (double& v : row) v = v / 2 * (1 + std::tanh(gelu_inner(v)));
    }
    return y;
}

Rows gelu_gradient(const Rows& dy, const Rows& x) {
    Rows dx = dy;
    for (size_t n = 0; n < x.size(); ++n) {
        for (size_t i = 0; i < x[n].size(); ++i) {
            const double v = x[n][i];
            const double t = std::tanh(gelu_inner(v));
            const double slope = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * v * v);
            dx[n][i] *= (1 + t) / 2 + v / 2 * (1 - t * t) * slope;
        }
    }
    return dx;
}

/// Causal attention of one microbatch. qkv: columns q | k | v, the heads side by side in each.
struct Attention {
    size_t sequences, length, heads, size;  ///< size: of a head

    [[nodiscard]] size_t hidden() const { return heads * size; }
    /// Attention weights of query token i (index within the sequence) over keys 0..i.
    [[nodiscard]] Vector weights(const Rows& qkv, size_t first, size_t i, size_t head) const {
        const double scale = 1 / std::sqrt(static_cast<double>(size));
        Vector p(i + 1);
        double sum = 0;
        for (size_t j = 0; j <= i; ++j) {
            const double* q = &qkv[first + i][head * size];
            const double* k = &qkv[first + j][hidden() + head * size];
            p[j] = std::exp(scale * dot(q, k, size));
            sum += p[j];
        }
        for (double& v : p) v /= sum;
        return p;
    }

    [[nodiscard]] Rows forward(const Rows& qkv) const {
        Rows out(qkv.size(), Vector(hidden(), 0.0));
        each([&](size_t first, size_t i, size_t head) {
            const Vector p = weights(qkv, first, i, head);
            for (size_t j = 0; j <= i; ++j) {
                for (size_t d = 0; d < size; ++d) {
                    out[first + i][head * size + d] +=
                        p[j] * qkv[first + j][2 * hidden() + head * size + d];
                }
            }
        });
        return out;
    }

    [[nodiscard]] Rows gradient(const Rows& dout, const Rows& qkv) const {
        Rows dqkv(qkv.size(), Vector(3 * hidden(), 0.0));
        const double scale = 1 / std::sqrt(static_cast<double>(size));
        each([&](size_t first, size_t i, size_t head) {
            const size_t q = head * size;
            const size_t k = hidden() + head * size;
            const size_t v = 2 * hidden() + head * size;
            const Vector p = weights(qkv, first, i, head);
            const double* d = &dout[first + i][head * size];
            Vector dp(i + 1);
            double mean = 0;
            for (size_t j = 0; j <= i; ++j) {
                dp[j] = dot(d, &qkv[first + j][v], size);
                mean += p[j] * dp[j];
            }
            for (size_t j = 0; j <= i; ++j) {
                const double ds = p[j] * (dp[j] - mean) * scale;
                for (size_t c = 0; c < size; ++c) {
                    dqkv[first + j][v + c] += p[j] * d[c];
                    dqkv[first + i][q + c] += ds * qkv[first + j][k + c];
                    dqkv[first + j][k + c] += ds * qkv[first + i][q + c];
                }
            }
        });
        return dqkv;
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
    Rows x, ln1, qkv, attention, middle, ln2, fc, activated;
};

class MicrobatchStep {
public:
    MicrobatchStep(const ModelConfig& config, const Batch& batch, size_t index,
                   const Tensors& weights, Tensors* gradients)
        : config_(config),
          tokens_(batch.tokens[index]),
          labels_(batch.labels[index]),
          g_(batch.loss_gradient[index]),
          weights_(weights),
          wanted_(gradients != nullptr),
          sink_(gradients),
          attention_{static_cast<size_t>(batch.sequences), static_cast<size_t>(batch.seq_length),
                     static_cast<size_t>(config.num_attention_heads),
                     static_cast<size_t>(config.hidden_size / config.num_attention_heads)} {}

    /// Returns the loss; adds the gradients.
    double run() {
        const auto h = static_cast<size_t>(config_.hidden_size);
        const Vector& wte = weights_.at("transformer.wte.weight");
        const Vector& wpe = weights_.at("transformer.wpe.weight");
        Rows x(tokens_.size(), Vector(h));
        for (size_t n = 0; n < x.size(); ++n) {
            const auto token = static_cast<size_t>(tokens_[n]);
            const size_t position = n % attention_.length;
            for (size_t i = 0; i < h; ++i) x[n][i] = wte[token * h + i] + wpe[position * h + i];
        }
        std::vector<LayerTrace> layers;
        for (int l = 0; l < config_.num_layers; ++l) x = layer_forward(l, x, layers);
        const double epsilon = config_.norm_epsilon;
        const Rows final =
            layer_norm(x, at("transformer.ln_f.weight"), at("transformer.ln_f.bias"), epsilon);
        Rows dx(final.size(), Vector(h, 0.0));
        const double loss = output(final, dx);
        if (!wanted_) return loss;

        dx = layer_norm_gradient(dx, x, at("transformer.ln_f.weight"), epsilon, "transformer.ln_f",
                                 sink_);
        for (int l = config_.num_layers; l-- > 0;) {
            dx = layer_backward(l, dx, layers[static_cast<size_t>(l)]);
        }
        Vector dwte(wte.size(), 0.0);
        Vector dwpe(wpe.size(), 0.0);
        for (size_t n = 0; n < dx.size(); ++n) {
            const auto token = static_cast<size_t>(tokens_[n]);
            const size_t position = n % attention_.length;
            for (size_t i = 0; i < h; ++i) {
                dwte[token * h + i] += dx[n][i];
                dwpe[position * h + i] += dx[n][i];
            }
        }
        sink_.add("transformer.wte.weight", dwte);
        sink_.add("transformer.wpe.weight", dwpe);
        return loss;
    }

private:
    [[nodiscard]] const Vector& at(const std::string& name) const { return weights_.at(name); }
    [[nodiscard]] static std::string layer_name(int layer) {
        return "transformer.h." + std::to_string(layer) + ".";
    }

    Rows layer_forward(int layer, const Rows& x, std::vector<LayerTrace>& traces) const {
        const std::string name = layer_name(layer);
        const double epsilon = config_.norm_epsilon;
        LayerTrace t;
        t.x = x;
        t.ln1 = layer_norm(x, at(name + "ln_1.weight"), at(name + "ln_1.bias"), epsilon);
        t.qkv = linear(t.ln1, at(name + "attn.c_attn.weight"), at(name + "attn.c_attn.bias"));
        t.attention = attention_.forward(t.qkv);
        t.middle = sum(
            x, linear(t.attention, at(name + "attn.c_proj.weight"), at(name + "attn.c_proj.bias")));
        t.ln2 = layer_norm(t.middle, at(name + "ln_2.weight"), at(name + "ln_2.bias"), epsilon);
        t.fc = linear(t.ln2, at(name + "mlp.c_fc.weight"), at(name + "mlp.c_fc.bias"));
        t.activated = gelu(t.fc);
        Rows out = sum(t.middle, linear(t.activated, at(name + "mlp.c_proj.weight"),
                                        at(name + "mlp.c_proj.bias")));
        traces.push_back(std::move(t));
        return out;
    }

    Rows layer_backward(int layer, const Rows& dy, const LayerTrace& t) {
        const std::string name = layer_name(layer);
        const double epsilon = config_.norm_epsilon;
        Rows d = linear_gradient(dy, t.activated, at(name + "mlp.c_proj.weight"),
                                 name + "mlp.c_proj", sink_);
        d = gelu_gradient(d, t.fc);
        d = linear_gradient(d, t.ln2, at(name + "mlp.c_fc.weight"), name + "mlp.c_fc", sink_);
        d = layer_norm_gradient(d, t.middle, at(name + "ln_2.weight"), epsilon, name + "ln_2",
                                sink_);
        const Rows dmiddle = sum(dy, d);
        d = linear_gradient(dmiddle, t.attention, at(name + "attn.c_proj.weight"),
                            name + "attn.c_proj", sink_);
        d = attention_.gradient(d, t.qkv);
        d = linear_gradient(d, t.ln1, at(name + "attn.c_attn.weight"), name + "attn.c_attn", sink_);
        d = layer_norm_gradient(d, t.x, at(name + "ln_1.weight"), epsilon, name + "ln_1", sink_);
        return sum(dmiddle, d);
    }

    /// Projection, softmax and loss.
    double output(const Rows& x, Rows& dx) {
        const Vector& w = at(config_.tied ? "transformer.wte.weight" : "lm_head.weight");
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
                const double dz = g * (p * (1 + 2 * config_.z_loss * log_z) - target);
                for (size_t i = 0; i < h; ++i) {
                    dx[n][i] += dz * w[j * h + i];
                    dw[j * h + i] += dz * x[n][i];
                }
            }
        }
        sink_.add(config_.tied ? "transformer.wte.weight (output)" : "lm_head.weight", dw);
        return total;
    }

    const ModelConfig& config_;
    const std::vector<int32_t>& tokens_;
    const std::vector<int32_t>& labels_;
    const std::vector<float>& g_;
    const Tensors& weights_;
    bool wanted_;
    GradientSink sink_;
    Attention attention_;
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

// SPDX-License-Identifier: Apache-2.0
#include "tests/model/fp64_operators.hpp"

#include <cmath>
#include <numbers>
#include <utility>

namespace vocabpipe::testing::fp64 {

namespace {

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

/// An activation and its derivative.
std::pair<double, double> activate(kernels::Activation kind, double x) {
    if (kind == kernels::Activation::silu) {
        const double s = 1 / (1 + std::exp(-x));
        return {x * s, s + x * s * (1 - s)};
    }
    if (kind == kernels::Activation::gelu) {
        const double phi = (1 + std::erf(x / std::numbers::sqrt2)) / 2;
        return {x * phi, phi + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi)};
    }
    const double root = std::sqrt(2 / std::numbers::pi);
    const double t = std::tanh(root * (x + 0.044715 * x * x * x));
    return {x / 2 * (1 + t), (1 + t) / 2 + x / 2 * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x)};
}

}  // namespace

double dot(const double* a, const double* b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
}

Rows sum(const Rows& a, const Rows& b) {
    Rows out = a;
    for (size_t n = 0; n < a.size(); ++n) {
        for (size_t i = 0; i < a[n].size(); ++i) out[n][i] += b[n][i];
    }
    return out;
}

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

double RmsNorm::inverse_rms(const double* x) const {
    return 1 / std::sqrt(dot(x, x, gamma.size()) / static_cast<double>(gamma.size()) + epsilon);
}

void RmsNorm::forward(double* x) const {
    const double r = inverse_rms(x);
    for (size_t i = 0; i < gamma.size(); ++i) x[i] *= (gamma[i] + offset) * r;
}

void RmsNorm::gradient(double* dy, const double* x, Vector& dgamma) const {
    const double r = inverse_rms(x);
    double along = 0;
    for (size_t i = 0; i < gamma.size(); ++i) {
        dgamma[i] += dy[i] * x[i] * r;
        dy[i] *= gamma[i] + offset;
        along += dy[i] * x[i] * r / static_cast<double>(gamma.size());
    }
    for (size_t i = 0; i < gamma.size(); ++i) dy[i] = r * (dy[i] - along * x[i] * r);
}

Rows MlpActivation::forward(const Rows& x) const {
    const size_t f = columns(x);
    Rows y(x.size(), Vector(f));
    for (size_t n = 0; n < x.size(); ++n) {
        for (size_t i = 0; i < f; ++i) {
            y[n][i] = activate(kind, x[n][i]).first * (gated ? x[n][f + i] : 1);
        }
    }
    return y;
}

Rows MlpActivation::gradient(const Rows& dy, const Rows& x) const {
    const size_t f = columns(x);
    Rows dx = x;
    for (size_t n = 0; n < x.size(); ++n) {
        for (size_t i = 0; i < f; ++i) {
            const auto [value, slope] = activate(kind, x[n][i]);
            dx[n][i] = dy[n][i] * slope * (gated ? x[n][f + i] : 1);
            if (gated) dx[n][f + i] = dy[n][i] * value;
        }
    }
    return dx;
}

Rotary plain_rotary(double theta, size_t size) {
    Rotary rotary;
    for (size_t i = 0; 2 * i < size; ++i) {
        rotary.frequencies.push_back(
            std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(size)));
    }
    return rotary;
}

bool Attention::sees(size_t first, size_t i, size_t j) const {
    const bool of_document =
        first_visible.empty() || j >= static_cast<size_t>(first_visible[first + i]);
    return j <= i && (window == 0 || i - j < window) && of_document;
}

double Attention::score(const Rows& qkv, size_t first, size_t i, size_t j, size_t head) const {
    const double plain =
        scale * dot(&qkv[first + i][query_column(head)], &qkv[first + j][key_column(head)], size);
    return softcap > 0 ? softcap * std::tanh(plain / softcap) : plain;
}

Vector Attention::weights(const Rows& qkv, size_t first, size_t i, size_t head) const {
    Vector p(i + 1, 0.0);
    double sum = sinks.empty() ? 0 : std::exp(sinks[head]);
    for (size_t j = 0; j <= i; ++j) {
        if (sees(first, i, j)) p[j] = std::exp(score(qkv, first, i, j, head));
        sum += p[j];
    }
    for (double& v : p) v /= sum;
    return p;
}

Rows Attention::forward(const Rows& qkv) const {
    Rows out(qkv.size(), Vector(heads * value_size, 0.0));
    each([&](size_t first, size_t i, size_t head) {
        const Vector p = weights(qkv, first, i, head);
        for (size_t j = 0; j <= i; ++j) {
            for (size_t d = 0; d < value_size; ++d) {
                out[first + i][head * value_size + d] +=
                    p[j] * qkv[first + j][value_column(head) + d];
            }
        }
    });
    return out;
}

Rows Attention::gradient(const Rows& dout, const Rows& qkv, std::span<double> dsinks) const {
    Rows dqkv(qkv.size(), Vector(qkv[0].size(), 0.0));
    each([&](size_t first, size_t i, size_t head) {
        const size_t q = query_column(head);
        const size_t k = key_column(head);
        const size_t v = value_column(head);
        const Vector p = weights(qkv, first, i, head);
        const double* d = &dout[first + i][head * value_size];
        Vector dp(i + 1);
        double mean = 0;
        for (size_t j = 0; j <= i; ++j) {
            dp[j] = dot(d, &qkv[first + j][v], value_size);
            mean += p[j] * dp[j];
        }
        if (!sinks.empty()) dsinks[head] -= (1 - std::accumulate(p.begin(), p.end(), 0.0)) * mean;
        for (size_t j = 0; j <= i; ++j) {
            double ds = p[j] * (dp[j] - mean) * scale;
            if (softcap > 0) {
                const double t = score(qkv, first, i, j, head) / softcap;
                ds *= 1 - t * t;
            }
            for (size_t c = 0; c < value_size; ++c) dqkv[first + j][v + c] += p[j] * d[c];
            for (size_t c = 0; c < size; ++c) {
                dqkv[first + i][q + c] += ds * qkv[first + j][k + c];
                dqkv[first + j][k + c] += ds * qkv[first + i][q + c];
            }
        }
    });
    return dqkv;
}

void Attention::rotate(Rows& qkv, double theta, double direction) const {
    rotate(qkv, plain_rotary(theta, rotated), direction);
}

void Attention::rotate(Rows& qkv, const Rotary& rotary, double direction) const {
    const size_t half = rotary.frequencies.size();
    for (size_t n = 0; n < qkv.size(); ++n) {
        for (size_t head = 0; head < heads + kv_heads; ++head) {
            for (size_t i = 0; i < half; ++i) {
                const double angle =
                    direction * static_cast<double>(n % length) * rotary.frequencies[i];
                double& low = qkv[n][head * size + i];
                double& high = qkv[n][head * size + half + i];
                const double a = low;
                const double cosine = rotary.amplitude * std::cos(angle);
                const double sine = rotary.amplitude * std::sin(angle);
                low = a * cosine - high * sine;
                high = high * cosine + a * sine;
            }
        }
    }
}

}  // namespace vocabpipe::testing::fp64

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "vocabpipe/activation.hpp"

namespace vocabpipe::testing {

/// Logical tensors by name, whole, row-major.
using Tensors = std::map<std::string, std::vector<double>>;

namespace fp64 {

// What layers are made of, value and gradient, written from the definitions in plain loops in
// double, one token after the other.

using Vector = std::vector<double>;
using Rows = std::vector<Vector>;  ///< [token][feature]

[[nodiscard]] double dot(const double* a, const double* b, size_t count);
[[nodiscard]] Rows sum(const Rows& a, const Rows& b);

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

/// y = w x + b per token; w (out, in); b empty: none.
[[nodiscard]] Rows linear(const Rows& x, const Vector& w, const Vector& b);
/// dx; adds to "<name>.weight" and "<name>.bias".
Rows linear_gradient(const Rows& dy, const Rows& x, const Vector& w, const std::string& name,
                     bool bias, GradientSink& sink);

[[nodiscard]] Rows layer_norm(const Rows& x, const Vector& gamma, const Vector& beta,
                              double epsilon);
Rows layer_norm_gradient(const Rows& dy, const Rows& x, const Vector& gamma, double epsilon,
                         const std::string& name, GradientSink& sink);

/// RMSNorm of as many elements as gamma has: y = (gamma + offset) x / rms.
struct RmsNorm {
    const Vector& gamma;
    double offset, epsilon;

    [[nodiscard]] double inverse_rms(const double* x) const;
    /// x becomes y.
    void forward(double* x) const;
    /// dy becomes dx.
    void gradient(double* dy, const double* x, Vector& dgamma) const;
};

/// The MLP's middle.
struct MlpActivation {
    kernels::Activation kind;
    bool gated;  ///< activation(gate) * up of rows gate | up, else activation(x)

    [[nodiscard]] Rows forward(const Rows& x) const;
    [[nodiscard]] Rows gradient(const Rows& dy, const Rows& x) const;

private:
    [[nodiscard]] size_t columns(const Rows& x) const { return x[0].size() / (gated ? 2 : 1); }
};

/// Pair i of a head turns by the angle t frequencies[i] at position t.
struct Rotary {
    Vector frequencies;
    double amplitude = 1;  ///< of cos and sin
};
/// theta^(-2 i / size) of pair i.
[[nodiscard]] Rotary plain_rotary(double theta, size_t size);

/// Causal attention of one microbatch. qkv: columns q | k | v, the heads side by side in each.
struct Attention {
    size_t sequences, length, heads, kv_heads, size;  ///< size: of a head
    double scale, softcap;
    size_t window = 0;                            ///< 0: none
    std::span<const int32_t> first_visible = {};  ///< of all tokens, or none
    size_t rotated = size;                        ///< columns of a head that rotate() turns
    size_t value_size = size;                     ///< columns of a head of v, and of the result
    std::span<const double> sinks = {};           ///< one more score of each head, or none

    [[nodiscard]] Rows forward(const Rows& qkv) const;
    /// Adds the gradients of the sinks to `dsinks`, which has as many.
    [[nodiscard]] Rows gradient(const Rows& dout, const Rows& qkv,
                                std::span<double> dsinks = {}) const;
    /// Rotates the heads of q and k by their positions; direction -1: back.
    void rotate(Rows& qkv, double theta, double direction) const;
    void rotate(Rows& qkv, const Rotary& rotary, double direction) const;

private:
    [[nodiscard]] size_t query_column(size_t head) const { return head * size; }
    [[nodiscard]] size_t key_column(size_t head) const {
        return heads * size + head / (heads / kv_heads) * size;
    }
    [[nodiscard]] size_t value_column(size_t head) const {
        return (heads + kv_heads) * size + head / (heads / kv_heads) * value_size;
    }
    [[nodiscard]] bool sees(size_t first, size_t i, size_t j) const;
    [[nodiscard]] double score(const Rows& qkv, size_t first, size_t i, size_t j,
                               size_t head) const;
    /// Attention weights of query token i (index within the sequence) over keys 0..i.
    [[nodiscard]] Vector weights(const Rows& qkv, size_t first, size_t i, size_t head) const;
    template <typename Body>
    void each(Body&& body) const {
        for (size_t s = 0; s < sequences; ++s) {
            for (size_t i = 0; i < length; ++i) {
                for (size_t head = 0; head < heads; ++head) body(s * length, i, head);
            }
        }
    }
};

}  // namespace fp64
}  // namespace vocabpipe::testing

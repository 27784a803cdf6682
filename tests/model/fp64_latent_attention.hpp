// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "tests/model/fp64_operators.hpp"

namespace vocabpipe::testing::fp64 {

/// Sizes of multi-head latent attention, as in LatentConfig.
struct LatentSizes {
    size_t heads = 0, q_rank = 0, kv_rank = 0, key_size = 0, rope_size = 0, value_size = 0;
    [[nodiscard]] size_t head_size() const { return rope_size + key_size; }
};

/// Whole names of its parameters, without ".weight".
struct LatentNames {
    std::string down, q_norm, q_up, kv_norm, kv_up;
};

/// Multi-head latent attention by its definition, without the product after the heads: every
/// token's latents, then the heads of q, k and v, one after the other. `of`: its heads; a head of q
/// and k has its columns with positions first.
class LatentAttention {
public:
    LatentAttention(const LatentSizes& sizes, const Attention& of, Rotary rotary, double epsilon,
                    LatentNames names, const Tensors& weights);

    /// The output of the heads.
    Rows forward(const Rows& x);
    /// The gradient of x; after forward().
    Rows gradient(const Rows& dheads, GradientSink& sink) const;

private:
    [[nodiscard]] size_t q_columns() const;
    /// Calls rotary(column of qkv, column of the rotary key), and up(column of qkv, column of the
    /// product up to k and v).
    template <typename Rotate, typename Up>
    void each_of_keys_and_values(Rotate&& rotate, Up&& up) const;
    [[nodiscard]] RmsNorm norm(const std::string& name) const;

    LatentSizes sizes_;
    Attention of_;
    Rotary rotary_;
    double epsilon_;
    LatentNames names_;
    const Tensors& weights_;
    Rows x_, down_, q_latent_, kv_latent_, qkv_;
};

}  // namespace vocabpipe::testing::fp64

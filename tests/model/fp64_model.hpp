// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <vector>

#include "tests/model/fp64_operators.hpp"
#include "tests/support/single_rank_oracle.hpp"
#include "vocabpipe/model_config.hpp"

namespace vocabpipe::testing {

/// A training step of a model in double: what the single-rank oracle is checked against. Written
/// from the definitions of the families in plain loops, one token after the
/// other, rotary positions without scaling; it shares the names of the parameters with the library
/// and no code.
///
///     loss_n = log Z - (1 - eps) z_y - eps/V sum_j z_j + z_loss (log Z)^2,  0 where ignored
///     losses[j] = sum over the tokens of microbatch j of g_n loss_n
///
/// Depth k = 1 .. D of multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2) reads
/// what the depth before it made, after its norm, and the embedded token k places later:
///     h^k_i = norm(layer(M [norm(e_{i+k}); norm(h^{k-1}_i)])),  e = 0 beyond the sequence.
///
/// Gradients are those of the sum of `losses`, `depth_losses` and `router_loss`. A tied weight W
/// has two: "W" is the embedding's side, "W (output)" the projection's.
struct Fp64Step {
    std::vector<double> losses;
    std::vector<double> depth_losses;  ///< [depth][microbatch], as `losses` of the depth's rows
    double router_loss = 0;            ///< what the routers of experts add, of all microbatches
    Tensors gradients;
    double least_gap = INFINITY;  ///< Moe::least_gap() of all layers
    /// [layer][expert]: tokens of all microbatches; empty for a layer without experts. Layers of
    /// depths come last.
    std::vector<std::vector<double>> loads;
};
[[nodiscard]] Fp64Step fp64_step(const ModelConfig& config, const Batch& batch,
                                 const Tensors& weights);

/// The sum of the losses, without gradients.
[[nodiscard]] double fp64_loss(const ModelConfig& config, const Batch& batch,
                               const Tensors& weights);

}  // namespace vocabpipe::testing

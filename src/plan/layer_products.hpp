// SPDX-License-Identifier: Apache-2.0
// How long the linear layers of a transformer layer take on one rank, with what tensor and expert
// ranks exchange for them inside passes.
#pragma once

#include "src/plan/device_links.hpp"
#include "vocabpipe/device_spec.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/transformer_shape.hpp"

#include <cstdint>

namespace vocabpipe {

/// Matrix products of a device: m x n outputs over k terms (DeviceSpec).
class Products {
public:
    explicit Products(const DeviceSpec& device)
        : flops_per_ns_(device.peak_tflops.value * 1e3 * device.dense_efficiency.value),
          idle_(device.product_idle_outputs.value) {}
    /// Of the outputs alone: what grows with rows.
    [[nodiscard]] double outputs_ns(double m, double n, double k) const {
        return 2 * k * m * n / flops_per_ns_;
    }
    /// Of every product over k terms, whatever its outputs.
    [[nodiscard]] double fixed_ns(double k) const { return 2 * k * idle_ / flops_per_ns_; }
    /// Of a product.
    [[nodiscard]] double ns(double m, double n, double k) const {
        return outputs_ns(m, n, k) + fixed_ns(k);
    }

private:
    double flops_per_ns_, idle_;
};

/// How the tokens of a microbatch spread over the experts of a layer, on the rank that has most.
struct ExpertLoad {
    double rows = 1;       ///< its rows, over the mean of the ranks that share the experts
    double row_bound = 1;  ///< what it has memory for, likewise
    /// Rounds through that memory.
    [[nodiscard]] int waves() const;
};
/// `imbalance`: greatest load of a rank over the mean, which cannot be more than all tokens going
/// to the experts of one rank. Without expert ranks all rows are at home.
[[nodiscard]] ExpertLoad expert_load(const ExpertsShape& moe, const Mesh& mesh, double imbalance);
/// The greatest imbalance that there can be: all tokens go to experts of one rank.
[[nodiscard]] double worst_imbalance(const ExpertsShape& moe, int expert_ranks);

/// Nanoseconds of all products of one layer, exchanges included where computing does not hide them.
struct LayerProducts {
    double forward = 0;          ///< F
    double input_gradient = 0;   ///< I
    double weight_gradient = 0;  ///< W
    double backward = 0;         ///< B, which gathers once what I and W gather each
    double recompute = 0;        ///< of a selective R: what it dispatches to experts again
};

/// Of the mean layer, for a microbatch of `tokens` that t ranks share. Exchanges overlap with
/// products as overlap() says, by as many pieces as are best.
[[nodiscard]] LayerProducts layer_products(const TransformerShape& model, const DeviceSpec& device,
                                           const Mesh& mesh, int64_t tokens, double imbalance);

}  // namespace vocabpipe

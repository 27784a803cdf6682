// SPDX-License-Identifier: Apache-2.0
// The time of a transformer layer's linear layers on one rank, with the exchanges of tensor and
// expert ranks inside passes.
#pragma once

#include "src/model/blocks/block_work.hpp"
#include "src/plan/device_links.hpp"
#include "vocabpipe/device_spec.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/moe_config.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Nanoseconds of matrix products on a device: m x n outputs over k terms (DeviceSpec).
class Products {
public:
    explicit Products(const DeviceSpec& device)
        : flops_per_ns_(device.peak_tflops.value * 1e3 * device.dense_efficiency.value),
          idle_(device.product_idle_outputs.value) {}
    /// The part that grows with the number of outputs.
    [[nodiscard]] double outputs_ns(double m, double n, double k) const {
        return 2 * k * m * n / flops_per_ns_;
    }
    /// The fixed part of every product over k terms, for any number of outputs.
    [[nodiscard]] double fixed_ns(double k) const { return 2 * k * idle_ / flops_per_ns_; }
    /// The whole product.
    [[nodiscard]] double ns(double m, double n, double k) const {
        return outputs_ns(m, n, k) + fixed_ns(k);
    }

private:
    double flops_per_ns_, idle_;
};

/// How the tokens of a microbatch spread over the experts of a layer, for the rank with most rows.
struct ExpertLoad {
    double rows = 1;       ///< its rows / mean over ranks sharing the experts
    double row_bound = 1;  ///< rows that fit its memory, likewise
    /// Waves that the rows take through that memory.
    [[nodiscard]] int waves() const;
};
/// `imbalance`: greatest load of a rank over the mean, capped at worst_imbalance(). Without expert
/// ranks the load is 1.
[[nodiscard]] ExpertLoad expert_load(const MoeConfig& moe, const Mesh& mesh, double imbalance);
/// The greatest possible imbalance: all tokens go to experts of one rank.
[[nodiscard]] double worst_imbalance(const MoeConfig& moe, int expert_ranks);

/// Nanoseconds of all products of a layer, with the exchanges that computing does not hide.
struct LayerProducts {
    double forward = 0;          ///< F
    double input_gradient = 0;   ///< I
    double weight_gradient = 0;  ///< W
    double backward = 0;         ///< B, which gathers once; I and W gather each
    double recompute = 0;        ///< selective R: dispatch to experts again
};

/// Products of a layer, for a microbatch of `tokens` that t ranks share. Exchanges overlap with
/// products as in overlap(), with the best number of pieces.
[[nodiscard]] LayerProducts layer_products(const std::vector<BlockProduct>& products,
                                           const DeviceSpec& device, const Mesh& mesh,
                                           int64_t tokens, const ExpertLoad& load);

}  // namespace vocabpipe

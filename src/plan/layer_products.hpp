// SPDX-License-Identifier: Apache-2.0
// The time of a transformer layer's linear layers on one rank, with the exchanges of tensor and
// expert ranks inside passes.
#pragma once

#include "src/model/blocks/block_work.hpp"
#include "src/plan/device_rates.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/moe_config.hpp"
#include "vocabpipe/plan.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// How the tokens of a microbatch spread over the experts of a layer, for the rank with most rows.
struct ExpertLoad {
    double rows = 1;       ///< its rows / mean over ranks sharing the experts
    double row_bound = 1;  ///< rows that fit its memory, likewise
    int parts = 1;         ///< x, ranks that share each expert, and get all of its rows
    /// Waves that the rows take through that memory.
    [[nodiscard]] int waves() const;
};
/// `imbalance`: greatest load of a rank over the mean, capped at worst_imbalance(). In a single
/// group of expert ranks the load is 1.
[[nodiscard]] ExpertLoad expert_load(const MoeConfig& moe, const Candidate& candidate,
                                     double imbalance);
/// The greatest possible imbalance: all tokens go to experts of one group.
[[nodiscard]] double worst_imbalance(const MoeConfig& moe, int groups);

/// Nanoseconds of all products of a layer, with the exchanges that computing does not hide.
struct LayerProducts {
    double forward = 0;          ///< F
    double input_gradient = 0;   ///< I
    double weight_gradient = 0;  ///< W
    double backward = 0;         ///< B = I + W
    double recompute = 0;        ///< selective R: dispatch to experts again
};

/// Products of a layer, for a microbatch of `tokens` that t ranks share. Of the exchanges of tensor
/// ranks the part is added that kernels of the trainer do not hide (KernelRates); those of experts
/// overlap with products as in overlap(), with the best number of pieces.
[[nodiscard]] LayerProducts layer_products(const std::vector<BlockProduct>& products,
                                           const DeviceRates& rates, const Mesh& mesh,
                                           int64_t tokens, const ExpertLoad& load);

}  // namespace vocabpipe

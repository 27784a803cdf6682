// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/model_on_device.hpp"
#include "vocabpipe/plan.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Nanoseconds as a linear function of a rank's vocabulary rows.
struct Rows {
    double fixed = 0;
    double per_row = 0;
    [[nodiscard]] double of(double rows) const { return fixed + rows * per_row; }
};

/// Nanoseconds of the passes of one transformer layer.
struct LayerTimes {
    double forward = 0;          ///< F
    double input_gradient = 0;   ///< I
    double weight_gradient = 0;  ///< W
    double backward = 0;         ///< B
    double recompute = 0;        ///< R

    void add(const LayerTimes& other);
};

/// Nanoseconds of the units that every pass of a step is made of, for one microbatch on one rank.
struct UnitCosts {
    std::vector<LayerTimes> layers;    ///< [layer of the model]
    LayerTimes mtp_layers;             ///< all depths of multi-token prediction
    Rows logits;                       ///< the output layer's products: of S,
    Rows output_gradient;              ///< of its input, in S with one barrier and else in T,
    Rows output_weight_gradient;       ///< of T
    double softmax_per_row = 0;        ///< sharded output layer without products
    double whole_softmax_per_row = 0;  ///< whole output layer, likewise
    Rows gathered_logits;              ///< tensor ranks gather each other's
    double embedding = 0;              ///< E: rows of all tokens, for any shard
    double embedding_gradient = 0;     ///< G, all rows on one rank
    double vocabulary_pass = 0;        ///< fixed part of each of E, G, S and T
    double per_parameter_byte = 0;     ///< norm and optimizer step (memory-bound)
    double overlapped = 1;             ///< factor of F, B, I, W, R during collectives
};

/// Bytes per parameter that a step reads and writes: the optimizer reads gradient, master and
/// moments, and writes master, moments and weight; the norm reads the gradient.
inline constexpr int64_t kUpdateTraffic = 4 + 2 * 4 + 2 * 8 + 2;
inline constexpr int64_t kNormTraffic = 4;

/// From FLOPs, bytes and the device's efficiencies (docs/planning-costs.md). Of the candidate's
/// properties only mesh, microbatch, recomputation and the exchange of context ranks matter.
[[nodiscard]] UnitCosts unit_costs(const ModelOnDevice& model, const Candidate& candidate);

}  // namespace vocabpipe

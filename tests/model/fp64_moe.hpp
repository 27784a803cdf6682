// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <string>

#include "tests/model/fp64_operators.hpp"
#include "vocabpipe/moe_config.hpp"

namespace vocabpipe::testing::fp64 {

/// Names of the parameters of one layer's experts.
struct MoeNames {
    std::string router, gate_up, down;
    std::string correction_bias = {};  ///< whole; empty: none
};

/// A mixture of experts by its definition: every expert computes every token, and what a token did
/// not choose is multiplied by 0.
class Moe {
public:
    /// `loss_weight`: what the microbatch's tokens weigh in the loss.
    Moe(const MoeConfig& config, MlpActivation activation, MoeNames names, const Tensors& weights,
        double loss_weight);

    Rows forward(const Rows& x);
    /// After forward().
    Rows gradient(const Rows& dy, GradientSink& sink) const;
    /// The router's own losses.
    [[nodiscard]] double router_loss() const;
    /// [expert] how many tokens chose it.
    [[nodiscard]] Vector load() const;
    /// By how much what an expert that was not chosen is chosen by misses that of a chosen one:
    /// logits or, with a bias or groups, scores; the same of groups. Infinity where all are chosen.
    /// Rounding beyond this chooses other experts.
    [[nodiscard]] double least_gap() const { return least_gap_; }

private:
    [[nodiscard]] Vector expert(const std::string& name, size_t index) const;
    [[nodiscard]] double chosen_sum(size_t token) const;
    void choose(size_t token);

    const MoeConfig& config_;
    MlpActivation activation_;
    MoeNames names_;
    const Tensors& weights_;
    double loss_weight_;
    Rows x_, logits_, scores_;
    Rows chosen_;   ///< (N, E) 1 where a token chose an expert
    Rows weight_;   ///< (N, E)
    Vector log_z_;  ///< (N)
    double least_gap_ = INFINITY;
    std::vector<Rows> gate_up_, act_, out_;  ///< [expert] of all tokens
};

}  // namespace vocabpipe::testing::fp64

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/block_work.hpp"
#include "src/model/blocks/moe/expert_rows.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "src/model/parameter_source.hpp"
#include "vocabpipe/router_options.hpp"

#include <cstdint>
#include <string>

namespace vocabpipe {

struct RouterBlockOptions {
    std::string name;  ///< without ".weight"
    int64_t hidden_size = 0;
    int64_t experts = 0;
    kernels::RouterOptions routing;
    /// Whole name of the bias that is added to the scores when experts are chosen; empty: none.
    std::string correction_bias;
    float aux_loss = 0;  ///< coefficient of the load balancing loss
    float z_loss = 0;    ///< of the squared log partition function
    bool alone = true;   ///< ExpertRows::views()
    float init_std = 0;
};

/// Chooses the experts of every token: logits = x w^T in fp32, then Operators::router_forward().
/// Its own losses for a microbatch of N tokens whose loss gradients g_n add up to G:
///     aux_loss G E / (k N^2) sum_e load_e P_e   (P_e = sum over tokens of the scores of e),
///     z_loss G / N sum_n (log Z_n)^2.
/// Tensor ranks route N/t of these tokens each and add up load and P. The aux loss is
/// differentiated through P only (Fedus, Zoph and Shazeer 2022). The stage knows all factors of
/// both losses, so stages exchange nothing for them.
class Router {
public:
    /// What F leaves.
    struct Saved {
        Tensor logits;      ///< (N, E) fp32
        Tensor log_z;       ///< (N, 1) fp32
        Tensor load;        ///< (1, E) fp32, of all N tokens
        Tensor score_sums;  ///< (1, E) fp32, likewise
        ExpertRows rows;
    };
    /// What I leaves for W.
    struct Gradients {
        Tensor logits;  ///< (N, E) in the run's type
    };

    Router(const RouterBlockOptions& options, ParameterSource& parameters);

    [[nodiscard]] Saved saved_views(SavedViews& views) const;
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const;
    [[nodiscard]] int64_t workspace_bytes(const ScratchFor& use) const;

    /// Uses pass.scratch.workspace in a tensor team, as backward_input() does.
    void forward(const StagePass& pass, ConstTensor x, const Saved& saved) const;
    /// dweights (N, k) fp32: gradient of ExpertRows::weights; dx (N, h): of x. Uses
    /// pass.scratch.workspace.
    void backward_input(const StagePass& pass, ConstTensor dweights, const Saved& saved,
                        const Gradients& gradients, Tensor dx) const;
    void backward_weight(const StagePass& pass, ConstTensor x, const Saved& saved,
                         const Gradients& gradients) const;

    [[nodiscard]] BlockProduct product() const {
        return {.in = options_.hidden_size, .out = options_.experts};
    }

private:
    [[nodiscard]] kernels::RouterLossScales loss_scales(const StagePass& pass) const;

    RouterBlockOptions options_;
    Parameter* weight_;
    Parameter* correction_bias_;  ///< (1, E) fp32; null: none
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/block_work.hpp"
#include "src/model/blocks/moe/expert_rows.hpp"
#include "src/model/blocks/moe/kept_on_host.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "src/model/parameter_source.hpp"
#include "src/model/views.hpp"
#include "vocabpipe/activation.hpp"
#include "vocabpipe/moe_config.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

struct ExpertsOptions {
    std::string name;                           ///< precedes an expert's number; ends with a dot
    bool numbered = true;                       ///< false: one expert, without a number
    std::string gate_name, up_name, down_name;  ///< of one expert, without ".weight"
    int64_t hidden_size = 0;                    ///< h
    int64_t ffn_hidden_size = 0;                ///< f, of one expert, on all ranks that share it
    int64_t experts = 0;                        ///< E
    int64_t per_token = 0;                      ///< k
    kernels::Activation activation = kernels::Activation::silu;
    float gate_up_init_std = 0;
    float down_init_std = 0;
    /// experts: each group of `expert_tensor` neighboring ranks of an expert team has equally many
    /// experts, in order, and each rank of a group 1 / expert_tensor of the f columns of each of
    /// these; repeated: this rank has all of all.
    TensorCut cut = TensorCut::repeated;
    int ranks = 1;          ///< e
    int expert_tensor = 1;  ///< x; divides e and f
    /// Generation: every member of the team has all tokens and adds up the members' results.
    bool all_tokens = false;
    ExpertPieces pieces = {};
    double row_factor = kMoeRowFactor;  ///< ModelPartition::moe_row_factor

    /// Columns of an expert on this rank, f / x.
    [[nodiscard]] int64_t own_ffn() const { return ffn_hidden_size / expert_tensor; }
};

/// This rank's part of gate_up (E 2 f, h) and down (E h, f). Both hold all experts, one after the
/// other; files have one tensor per expert and matrix. Where ranks share an expert, each has rows
/// of its gate and of its up and the same columns of its down: the sum of what they make is what
/// the expert makes.
struct ExpertWeights {
    ExpertWeights(const ExpertsOptions& options, ParameterSource& parameters);
    Parameter* gate_up;
    Parameter* down;
};

/// Gated MLPs, one per expert, on the rows that the router sends to each. Grouped products do the
/// work of N k rows, however these spread over the experts. The rank has all experts, or it has all
/// tokens and runs forwards only (ExpertsOptions::all_tokens); for other teams see TeamExperts.
class Experts {
public:
    /// What F leaves, of N k rows sorted by expert. f: ExpertsOptions::own_ffn().
    struct Saved {
        Tensor in;       ///< (N k, h) copies of tokens
        Tensor gate_up;  ///< (N k, 2 f)
        Tensor act;      ///< (N k, f)
    };
    /// What I leaves for W.
    struct Gradients {
        Tensor out;      ///< (N k, h) of the experts' output
        Tensor gate_up;  ///< (N k, 2 f)
    };

    Experts(const ExpertsOptions& options, const ExpertWeights& weights);

    [[nodiscard]] Saved saved_views(SavedViews& views) const;
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const;
    /// Scratch columns per own token.
    [[nodiscard]] int64_t scratch_columns() const;

    /// Scratch::workspace of a forward.
    [[nodiscard]] int64_t workspace_bytes(const ScratchFor& use) const;

    /// out = residual + the weighted sum of the outputs of each token's experts. An empty `out` is
    /// not computed. In a team a member computes the rows of its own experts only, and adds up all
    /// members' sums in member order, so that all get the same bits.
    void forward(const StagePass& pass, ConstTensor x, const ExpertRows& rows, const Saved& saved,
                 ConstTensor residual, Tensor out) const;
    /// Recomputes the cheap tensors of `saved`.
    void recompute(const StagePass& pass, ConstTensor x, const ExpertRows& rows,
                   const Saved& saved) const;
    /// dweights (N, k) fp32: gradient of the rows' weights. The gradient of x is left to
    /// add_input_gradient().
    void backward_inside(const StagePass& pass, ConstTensor dy, const ExpertRows& rows,
                         const Saved& saved, const Gradients& gradients, Tensor dweights) const;
    /// dx += the gradient of x, after backward_inside().
    void add_input_gradient(const StagePass& pass, const ExpertRows& rows,
                            const Gradients& gradients, Tensor dx) const;
    void backward_weight(const StagePass& pass, const ExpertRows& rows, const Saved& saved,
                         const Gradients& gradients) const;

    [[nodiscard]] const ExpertWeights& weights() const { return weights_; }
    [[nodiscard]] BlockWork work() const;

private:
    /// (e N, h): the sums of all members.
    [[nodiscard]] Tensor partials(Views& views, int64_t tokens, DType dtype) const;

    ExpertsOptions options_;
    ExpertWeights weights_;
    /// Rows of each expert, keyed by ExpertRows::row_begin: only F waits for them.
    std::shared_ptr<KeptOnHost<std::vector<RowRange>>> kept_;
};

}  // namespace vocabpipe

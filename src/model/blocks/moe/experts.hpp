// SPDX-License-Identifier: Apache-2.0
#pragma once

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
    std::string name;                           ///< before the number of an expert, ends with a dot
    bool numbered = true;                       ///< else there is one, whose names have no number
    std::string gate_name, up_name, down_name;  ///< of one expert, without ".weight"
    int64_t hidden_size = 0;                    ///< h
    int64_t ffn_hidden_size = 0;                ///< f, of one expert
    int64_t experts = 0;                        ///< E
    int64_t per_token = 0;                      ///< k
    kernels::Activation activation = kernels::Activation::silu;
    float gate_up_init_std = 0;
    float down_init_std = 0;
    /// experts: the ranks of an expert team have E / `ranks` experts each, rank j those from
    /// E j / ranks on; repeated: this rank has all of them.
    TensorCut cut = TensorCut::repeated;
    int ranks = 1;  ///< e
    /// Generation: every member of the team has all tokens, and adds up what the members made.
    bool all_tokens = false;
    ExpertPieces pieces = {};
    double row_factor = kMoeRowFactor;  ///< ModelPartition::moe_row_factor
};

/// This rank's part of gate_up (E 2 f, h) and down (E h, f), which hold all experts, one after the
/// other; files have a tensor per expert and matrix.
struct ExpertWeights {
    ExpertWeights(const ExpertsOptions& options, ParameterSource& parameters);
    Parameter* gate_up;
    Parameter* down;
};

/// Gated MLPs, one per expert, on the rows that the router sends to each: grouped products, whose
/// work is that of N k rows however they are spread. The rank has all experts, or it has all tokens
/// and forwards alone (ExpertsOptions::all_tokens); else see TeamExperts.
class Experts {
public:
    /// What F leaves, of N k rows sorted by expert.
    struct Saved {
        Tensor in;       ///< (N k, h) copies of tokens
        Tensor gate_up;  ///< (N k, 2 f)
        Tensor act;      ///< (N k, f)
    };
    /// What I leaves for W.
    struct Gradients {
        Tensor out;      ///< (N k, h) of what the experts make
        Tensor gate_up;  ///< (N k, 2 f)
    };

    Experts(const ExpertsOptions& options, const ExpertWeights& weights);

    [[nodiscard]] Saved saved_views(SavedViews& views) const;
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const;
    /// Columns per own token.
    [[nodiscard]] int64_t scratch_columns() const;

    /// Of Scratch, for its forward.
    [[nodiscard]] int64_t workspace_bytes(const ScratchFor& use) const;

    /// out = residual + for every token the weighted sum of what its experts make. An empty `out`
    /// is not computed. In a team members' sums are added up in member order, the same on all of
    /// them, and rows of others' experts are not computed.
    void forward(const StagePass& pass, ConstTensor x, const ExpertRows& rows, const Saved& saved,
                 ConstTensor residual, Tensor out) const;
    /// Makes the cheap tensors of `saved` again.
    void recompute(const StagePass& pass, ConstTensor x, const ExpertRows& rows,
                   const Saved& saved) const;
    /// dweights (N, k) fp32: of the rows' weights. dx (N, h) += the gradient of x is left to
    /// add_input_gradient().
    void backward_inside(const StagePass& pass, ConstTensor dy, const ExpertRows& rows,
                         const Saved& saved, const Gradients& gradients, Tensor dweights) const;
    /// dx += the gradient of x, after backward_inside().
    void add_input_gradient(const StagePass& pass, const ExpertRows& rows,
                            const Gradients& gradients, Tensor dx) const;
    void backward_weight(const StagePass& pass, const ExpertRows& rows, const Saved& saved,
                         const Gradients& gradients) const;

    [[nodiscard]] const ExpertWeights& weights() const { return weights_; }
    /// Of a forward, per token.
    [[nodiscard]] double flops() const;
    /// Elements that recompute() reads and writes, per token.
    [[nodiscard]] int64_t recompute_traffic() const;

private:
    /// (e N, h): of all members.
    [[nodiscard]] Tensor partials(Views& views, int64_t tokens, DType dtype) const;

    ExpertsOptions options_;
    ExpertWeights weights_;
    /// Rows of each expert, by ExpertRows::row_begin: F alone waits for them.
    std::shared_ptr<KeptOnHost<std::vector<RowRange>>> kept_;
};

}  // namespace vocabpipe

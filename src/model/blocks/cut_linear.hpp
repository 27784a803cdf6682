// SPDX-License-Identifier: Apache-2.0
// The two ways in which ranks of tensor parallelism share a linear layer (Megatron-LM, Shoeybi et
// al. 2019, arXiv 1909.08053; boundaries by rows: Korthikanti et al. 2022, arXiv 2205.05198). On a
// rank without a team, both are the plain layer. N/t: own rows of the residual stream
// (tensor_team.hpp).
#pragma once

#include "src/model/blocks/linear.hpp"

#include <cstdint>
#include <string>

namespace vocabpipe {

/// Each member computes some columns of the result, from the same rows of the weight.  x (N/t, in),
/// y (N, out/t).
class ColumnLinear {
public:
    ColumnLinear(const LinearOptions& options, ParameterSource& parameters);

    void forward(const StagePass& pass, ConstTensor x, Tensor y) const;
    /// As in Linear.
    void forward_gelu(const StagePass& pass, ConstTensor x, Tensor before, Tensor y) const;
    /// dx (N/t, in): the sum over the columns of all members.
    void backward_input(const StagePass& pass, ConstTensor dy, Tensor dx) const;
    /// Gathers x again, because F does not keep the gathered tensor.
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x) const;

    /// Scratch of all passes.
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const {
        return product_.adapter_scratch(use);
    }
    [[nodiscard]] BlockProduct product() const { return product_.product(); }

private:
    std::string name_;
    Linear product_;
};

/// Each member has some columns of x and of the weight; the members add up their products.  x (N,
/// in/t), y (N/t, out). Every member has the whole bias; its gradient here is that of the member's
/// own rows.
class RowLinear {
public:
    RowLinear(const LinearOptions& options, ParameterSource& parameters);

    /// As in Linear.
    void forward_onto(const StagePass& pass, ConstTensor x, ConstTensor residual, Tensor y) const;
    /// dx (N, in/t). In a team's whole backward this also makes the weight gradients, which need
    /// `x`, while dy is gathered.
    void backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, Tensor dx) const;
    /// Likewise, with the gradient of Linear::backward_input_gelu().
    void backward_input_gelu(const StagePass& pass, ConstTensor dy, ConstTensor x,
                             ConstTensor before, Tensor dx) const;
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x) const;

    /// Scratch of all passes.
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const { return product_.scratch(use); }
    [[nodiscard]] BlockProduct product() const { return product_.product(); }

private:
    std::string name_;
    Linear product_;
};

}  // namespace vocabpipe

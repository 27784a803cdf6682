// SPDX-License-Identifier: Apache-2.0
// The two ways in which ranks of tensor parallelism share a linear layer (Megatron-LM, Shoeybi et
// al. 2019, arXiv 1909.08053; boundaries by rows: Korthikanti et al. 2022, arXiv 2205.05198).
// Alone, both are the plain layer. N/t: own rows of the residual stream (tensor_team.hpp).
#pragma once

#include "src/model/blocks/linear.hpp"

#include <cstdint>
#include <string>

namespace vocabpipe {

/// Members hold columns of the result, which are rows of the weight.  x (N/t, in), y (N, out/t).
class ColumnLinear {
public:
    ColumnLinear(const LinearOptions& options, ParameterSource& parameters);

    void forward(const StagePass& pass, ConstTensor x, Tensor y) const;
    /// As Linear's.
    void forward_gelu(const StagePass& pass, ConstTensor x, Tensor before, Tensor y) const;
    /// dx (N/t, in): the sum of what all columns make.
    void backward_input(const StagePass& pass, ConstTensor dy, Tensor dx) const;
    /// Gathers x again, which F does not keep.
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x) const;

    /// Of a forward of all members, per token.
    [[nodiscard]] double flops() const { return product_.flops(); }

private:
    std::string name_;
    Linear product_;
};

/// Members hold columns of x and of the weight, and add up their products.  x (N, in/t), y (N/t,
/// out). Every member has the whole bias; its gradient here is that of the member's own rows.
class RowLinear {
public:
    RowLinear(const LinearOptions& options, ParameterSource& parameters);

    /// As Linear's.
    void forward_onto(const StagePass& pass, ConstTensor x, ConstTensor residual, Tensor y) const;
    /// dx (N, in/t). In a team's whole backward also what backward_weight() makes of `x`, as long
    /// as dy is gathered.
    void backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, Tensor dx) const;
    /// Likewise, with the gradient of Linear::backward_input_gelu().
    void backward_input_gelu(const StagePass& pass, ConstTensor dy, ConstTensor x,
                             ConstTensor before, Tensor dx) const;
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x) const;

    /// Of forward_onto().
    [[nodiscard]] ScratchSize scratch() const { return product_.scratch(); }
    /// Of a forward of all members, per token.
    [[nodiscard]] double flops() const { return product_.flops(); }

private:
    std::string name_;
    Linear product_;
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/adapter.hpp"
#include "src/model/blocks/block_work.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/parameter_source.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

/// How files hold a linear layer.
struct LinearFiles {
    std::string name;                     ///< without ".weight" and ".bias"
    std::vector<std::string> parts = {};  ///< tensors of a split weight; empty: one tensor
    /// The number of groups of rows in the one tensor, each with its share of every range of `out`:
    /// two groups are q0 k0 v0 q1 k1 v1. 0: range after range. Groups require no parts and no
    /// transposition.
    int64_t groups = 0;
    /// Where files keep each row of the weight, with the names of `parts`, or of the one tensor;
    /// without groups and transposition. Empty: one row after the other.
    std::vector<FilePart> rows = {};
    bool transposed = false;  ///< files keep [in, out] (GPT-2's Conv1D)
};

struct LinearOptions {
    LinearFiles files;
    /// Rows of the weight: one range per result that the product puts side by side (q, k, v).
    std::vector<int64_t> out;
    int64_t in = 0;
    bool bias = false;
    float init_std = 0;
    /// How the weight is cut. By rows, the bias is cut with it, range by range; by columns, every
    /// rank has the whole bias.
    TensorCut cut = TensorCut::repeated;
    LoraConfig lora = {};  ///< adapters, where it names this layer or a part of it
};

/// y = x w^T + b, plus what adapters add.  w (out, in), x (N, in), y (N, out). Below, x w^T and dy
/// w contain the parts of adapters.
class Linear {
public:
    Linear(const LinearOptions& options, ParameterSource& parameters);

    void forward(const StagePass& pass, ConstTensor x, Tensor y) const;
    /// y = x w^T.
    void forward_without_bias(const StagePass& pass, ConstTensor x, Tensor y) const;
    /// y = residual + x w^T + b, without residual if that is empty. residual (N, out) may alias y.
    /// An empty y is not computed.
    void forward_onto(const StagePass& pass, ConstTensor x, ConstTensor residual, Tensor y) const;
    /// before = x w^T + b, y = gelu_tanh(before); y may be computed from the sum before rounding.
    void forward_gelu(const StagePass& pass, ConstTensor x, Tensor before, Tensor y) const;
    /// dx = dy w.
    void backward_input(const StagePass& pass, ConstTensor dy, Tensor dx) const;
    /// dx = gelu_tanh'(before) * (dy w).
    void backward_input_gelu(const StagePass& pass, ConstTensor dy, ConstTensor before,
                             Tensor dx) const;
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x) const;
    /// The bias's gradient comes from `of_bias`, the rows of dy that this rank counts.
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x,
                         ConstTensor of_bias) const;

    /// Whether W has something to do.
    [[nodiscard]] bool is_trained() const {
        return weight_->gradient || (bias_ != nullptr && bias_->gradient) ||
               (adapter_ && adapter_->is_trained());
    }
    /// (1, out), or empty.
    [[nodiscard]] ConstTensor bias() const;
    /// Scratch of adapters.
    [[nodiscard]] ScratchSize adapter_scratch(const ScratchFor& use) const {
        return adapter_ ? adapter_->scratch(use) : ScratchSize();
    }
    /// Scratch of forward_onto() and of adapters.
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const {
        return ScratchSize{.own_columns = out_}.or_larger(adapter_scratch(use));
    }
    [[nodiscard]] BlockProduct product() const { return {.in = in_, .out = out_, .cut = cut_}; }

private:
    /// forward() with this bias, or none.
    void multiply(const StagePass& pass, ConstTensor x, ConstTensor bias, Tensor y) const;
    /// The part of W of weight and bias.
    void backward_own_weight(const StagePass& pass, ConstTensor dy, ConstTensor x) const;
    /// The bias's part of W, unless it is frozen.
    void backward_bias(const StagePass& pass, ConstTensor dy) const;

    int64_t in_;
    int64_t out_;
    TensorCut cut_;
    Parameter* weight_;
    Parameter* bias_;  ///< null: none
    std::optional<Adapter> adapter_;
};

}  // namespace vocabpipe

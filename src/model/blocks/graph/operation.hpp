// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/block_work.hpp"
#include "src/model/blocks/linear.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"

#include <cstdint>
#include <span>

namespace vocabpipe {

/// The tensors that an operation meets in a pass.
struct OperationTensors {
    std::span<const ConstTensor> inputs;  ///< (N, columns); empty where a backward does not read it
    ConstTensor output;                   ///< (N, columns), in backwards that read it
    Statistics statistics;                ///< (N, Operation::statistics())
};

/// A node of a layer's graph: how one tensor is made from others, and its gradients. What it says
/// about itself is all that GraphPlan derives a layer's passes from.
class Operation {
public:
    virtual ~Operation() = default;

    /// Whether it has weights: W reads the gradient of its output.
    [[nodiscard]] virtual bool trains() const { return false; }
    /// Whether I or W reads its inputs, or its output.
    [[nodiscard]] virtual bool reads_inputs() const { return false; }
    [[nodiscard]] virtual bool reads_output() const { return false; }
    /// Whether a selective recomputation makes its output again.
    [[nodiscard]] virtual bool cheap() const { return false; }
    /// Whether forward() can add a residual.
    [[nodiscard]] virtual bool adds_residual() const { return false; }
    /// Whether backward_input() can add a gradient; of an operation with one input.
    [[nodiscard]] virtual bool adds_gradient() const { return false; }
    /// Whether forward() works in the memory of its input.
    [[nodiscard]] virtual bool in_place() const { return false; }
    /// Whether backward_input() may work in the memory of dy.
    [[nodiscard]] virtual bool gradient_in_place() const { return false; }
    /// A loss, which nothing reads: its gradients need no dy.
    [[nodiscard]] virtual bool is_loss() const { return false; }
    /// Keeps what it reads for the caller: nothing reads it, and it takes no part in the backward.
    [[nodiscard]] virtual bool is_result() const { return false; }
    /// a + b: its inputs have the gradient of its output.
    [[nodiscard]] virtual bool is_sum() const { return false; }
    /// Activation::gelu_tanh, which products compute along.
    [[nodiscard]] virtual bool is_gelu() const { return false; }
    /// The product that the operation is, or null.
    [[nodiscard]] virtual const Linear* product() const { return nullptr; }
    /// Numbers per row that forward() leaves for the backward.
    [[nodiscard]] virtual int64_t statistics() const { return 0; }
    /// Besides rows for tensors of the graph.
    [[nodiscard]] virtual ScratchSize scratch(const ScratchFor& /*use*/) const { return {}; }
    [[nodiscard]] virtual BlockWork work(int64_t seq_length) const = 0;

    /// y = residual + its result; residual is empty unless adds_residual().
    virtual void forward(const StagePass& pass, const OperationTensors& tensors,
                         ConstTensor residual, Tensor y) const = 0;
    /// dx[i] = the gradient of input i, plus `added`, which is empty unless adds_gradient().
    virtual void backward_input(const StagePass& pass, const OperationTensors& tensors,
                                ConstTensor dy, ConstTensor added,
                                std::span<const Tensor> dx) const = 0;
    virtual void backward_weight(const StagePass& /*pass*/, const OperationTensors& /*tensors*/,
                                 ConstTensor /*dy*/) const {}
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/block_work.hpp"
#include "src/model/blocks/graph/graph_plan.hpp"
#include "src/model/blocks/graph/graph_record.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace vocabpipe {

/// The tensors through which a pass meets the rest of the step, dense and of the run's type. Only
/// their memory counts: nodes say which shape it has.
struct GraphTensors {
    int64_t units = 0;  ///< of the microbatch: tokens of a layer, sequences of a stage
    DType dtype = DType::fp32;
    std::span<const ConstTensor> inputs;
    std::span<const Tensor> outputs = {};  ///< F
    /// I, and W where it needs them: of outputs, then of GraphEnds::read_later.
    std::span<const ConstTensor> outside_gradients = {};
    std::span<const Tensor> input_gradients = {};  ///< I
};

/// Nodes that run together: a layer, or a stage of a model. Runs the lists of a GraphPlan.
class PlannedGraph {
public:
    /// What F leaves, besides the inputs.
    struct Saved {
        std::vector<Tensor> values;          ///< [GraphPlan::values]; empty: not kept
        std::vector<Statistics> statistics;  ///< [node]
    };
    /// What I leaves for W, besides gradients from outside.
    struct Gradients {
        std::vector<Tensor> kept;  ///< [GraphPlan::gradients]; empty: not kept
    };

    /// Every node comes after its inputs.
    PlannedGraph(std::vector<GraphNode> nodes, const GraphEnds& ends)
        : nodes_(std::move(nodes)), plan_(nodes_, ends), seq_length_(ends.seq_length) {}

    // Views have as many rows as the microbatch has units.
    [[nodiscard]] Saved saved_views(SavedViews& views) const;
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const;
    /// Scratch of F, R, I and W; columns are elements in a unit.
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const;
    /// Scratch of B.
    [[nodiscard]] ScratchSize whole_scratch(const ScratchFor& use) const;

    void forward(const StagePass& pass, const GraphTensors& tensors, const Saved& saved) const;
    /// A full R: what the backward needs.
    void forward_for_backward(const StagePass& pass, const GraphTensors& tensors,
                              const Saved& saved) const;
    /// A selective R.
    void recompute(const StagePass& pass, const GraphTensors& tensors, const Saved& saved) const;
    /// B: I and W in one, which keeps no gradient for W.
    void backward(const StagePass& pass, const GraphTensors& tensors, const Saved& saved) const;
    void backward_input(const StagePass& pass, const GraphTensors& tensors, const Saved& saved,
                        const Gradients& gradients) const;
    void backward_weight(const StagePass& pass, const GraphTensors& tensors, const Saved& saved,
                         const Gradients& gradients) const;

    /// The work of all nodes; each says what it does per token.
    [[nodiscard]] BlockWork work(int64_t seq_length) const;

private:
    class Values;
    class GradientViews;

    [[nodiscard]] const Operation& operation(int node) const {
        return *nodes_[index_of(node)].operation;
    }
    void run(const StagePass& pass, const ForwardStep& step, const Values& values) const;
    void run_backward(const StagePass& pass, const BackwardStep& step, const Values& values,
                      const GradientViews& views) const;
    void run_weight(const StagePass& pass, const WeightStep& step, int dy, const Values& values,
                    const GradientViews& views) const;
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use, int64_t columns) const;
    void run_list(const StagePass& pass, const Values& values, bool all) const;

    std::vector<GraphNode> nodes_;
    GraphPlan plan_;
    int64_t seq_length_;
};

}  // namespace vocabpipe

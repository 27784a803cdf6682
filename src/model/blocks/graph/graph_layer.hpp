// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/block_work.hpp"
#include "src/model/blocks/graph/graph_plan.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "src/model/parameter_source.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// A layer whose forward the user wrote (ModelConfig::layer_forward), on a rank that has all of it.
/// Has the functions of DecoderLayer, and runs the lists of a GraphPlan.
class GraphLayer {
public:
    /// What F leaves, besides the layer's input.
    struct Saved {
        std::vector<Tensor> values;          ///< [GraphPlan::values] (N, columns); empty: not kept
        std::vector<Statistics> statistics;  ///< [node]
    };
    /// What I leaves for W, besides the gradient of the layer's output.
    struct Gradients {
        std::vector<Tensor> kept;  ///< [GraphPlan::gradients] (N, columns); empty: not kept
    };

    /// Throws UsageError for a forward that is no layer.
    GraphLayer(const ModelConfig& config, int layer, ParameterSource& parameters);

    [[nodiscard]] Saved saved_views(SavedViews& views) const;
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const;
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const;

    /// As in DecoderLayer.
    void forward(const StagePass& pass, ConstTensor x, const Saved& saved, Tensor out) const;
    void recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const;
    void backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                        const Gradients& gradients, Tensor dx) const;
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                         const Gradients& gradients) const;

    [[nodiscard]] BlockWork work(int64_t seq_length) const;

private:
    class Values;
    class GradientViews;

    [[nodiscard]] const Operation& operation(int node) const {
        return *nodes_[static_cast<size_t>(node)].operation;
    }
    void run(const StagePass& pass, const ForwardStep& step, const Values& values) const;

    std::vector<GraphNode> nodes_;
    GraphPlan plan_;
};

}  // namespace vocabpipe

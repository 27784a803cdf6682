// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/block_work.hpp"
#include "src/model/blocks/graph/planned_graph.hpp"
#include "src/model/blocks/stage_pass.hpp"
#include "src/model/blocks/token_views.hpp"
#include "src/model/parameter_source.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace vocabpipe {

/// A layer whose forward the user wrote (ModelConfig::layer_forward), on a rank that has all of it.
/// Has the functions of DecoderLayer.
class GraphLayer {
public:
    using Saved = PlannedGraph::Saved;
    using Gradients = PlannedGraph::Gradients;

    /// The part between two pipeline_stage() of a model that the user wrote; only its work counts.
    explicit GraphLayer(PlannedGraph graph) : graph_(std::move(graph)) {}
    /// Throws UsageError for a forward that is no layer.
    GraphLayer(const ModelConfig& config, int layer, ParameterSource& parameters);

    [[nodiscard]] Saved saved_views(SavedViews& views) const { return graph_.saved_views(views); }
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const {
        return graph_.gradient_views(views);
    }
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const { return graph_.scratch(use); }

    /// As in DecoderLayer.
    void forward(const StagePass& pass, ConstTensor x, const Saved& saved, Tensor out) const;
    void recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const;
    void backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                        const Gradients& gradients, Tensor dx) const;
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                         const Gradients& gradients) const;

    [[nodiscard]] BlockWork work(int64_t seq_length) const { return graph_.work(seq_length); }

private:
    PlannedGraph graph_;
};

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
// A model of the user's (ModelConfig::model_forward) as nodes, and its parts.
#pragma once

#include "src/model/blocks/graph/graph_plan.hpp"
#include "src/model/blocks/graph/graph_record.hpp"
#include "src/model/parameter_source.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace vocabpipe {

/// What a ModelForward has composed.
struct ModelRecord {
    std::vector<GraphNode> nodes;  ///< every node after its inputs
    int layers = 0;
    int embedded = -1;  ///< the node of the embedded tokens; -1: the model reads none
    int output = -1;    ///< the node that the output layer gets; -1: it has losses of its own
};

/// Where the parameters of a layer come from.
using ParametersOfLayer = std::function<ParameterSource&(int layer)>;

/// Runs the user's function. Throws UsageError for one that is no model.
[[nodiscard]] ModelRecord record_model(const ModelConfig& config,
                                       const ParametersOfLayer& parameters);

/// A value that later stages read.
struct ValueAcross {
    int node = 0;
    int maker = 0;             ///< stage
    std::vector<int> readers;  ///< later stages, ascending
};

/// The values that stages give each other, by node. Nodes without inputs and weights are not among
/// them: every stage that reads one makes it.
[[nodiscard]] std::vector<ValueAcross> values_across(const ModelRecord& model,
                                                     const std::vector<int>& layers_per_stage);

/// The nodes of one stage.
struct StageGraph {
    /// Begin with those that come from outside: the embedded tokens in stage 0, then
    /// values_across() that the stage reads.
    std::vector<GraphNode> nodes;
    /// The outputs are values_across() that it makes, then in the last stage the model's output.
    GraphEnds ends;
    int inputs = 0;      ///< of values_across()
    int read_later = 0;  ///< of these, that later stages read, too
};
[[nodiscard]] StageGraph graph_of_stage(ModelRecord model, const std::vector<int>& layers_per_stage,
                                        int stage);

/// [layer] The nodes of every layer by itself, for sizes and costs: what others make comes from
/// outside.
[[nodiscard]] std::vector<StageGraph> graphs_of_layers(ModelRecord model);

}  // namespace vocabpipe

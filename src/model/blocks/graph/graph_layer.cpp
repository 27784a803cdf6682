// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/graph/graph_layer.hpp"

#include "src/model/blocks/graph/graph_record.hpp"
#include "src/model/blocks/graph/named_once.hpp"
#include "src/model/blocks/graph/record_layer.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/layer_graph.hpp"

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// Runs the forward that the user wrote.
std::vector<GraphNode> record(const ModelConfig& config, int layer, ParameterSource& parameters) {
    if (config.moe.experts > 0) {
        throw UsageError("--num-experts " + std::to_string(config.moe.experts) +
                         ": layers of your own (ModelConfig::layer_forward) have no experts of the "
                         "library's; use 0");
    }
    if (config.mtp_num_layers > 0) {
        throw UsageError("--mtp-num-layers " + std::to_string(config.mtp_num_layers) +
                         ": layers of your own (ModelConfig::layer_forward) have no depths; use 0");
    }
    NamedOnce named(parameters);
    GraphRecord record{.model = config, .layer = layer, .parameters = named};
    named.belongs_to(record);
    LayerGraph graph(record);
    record_layer(graph, config.layer_forward);
    return std::move(record.nodes);
}

PlannedGraph planned(const ModelConfig& config, int layer, ParameterSource& parameters) {
    std::vector<GraphNode> nodes = record(config, layer, parameters);
    const auto last = static_cast<int>(std::ssize(nodes)) - 1;  // the layer's output
    return {std::move(nodes), {.outputs = {last}}};
}

}  // namespace

GraphLayer::GraphLayer(const ModelConfig& config, int layer, ParameterSource& parameters)
    : graph_(planned(config, layer, parameters)) {}

void GraphLayer::forward(const StagePass& pass, ConstTensor x, const Saved& saved,
                         Tensor out) const {
    pass.input.all();
    GraphTensors tensors{.units = x.rows, .dtype = x.dtype, .inputs = {&x, 1}};
    if (out) {
        tensors.outputs = {&out, 1};
        graph_.forward(pass, tensors, saved);
    } else {
        graph_.forward_for_backward(pass, tensors, saved);
    }
    pass.output.all();
}

void GraphLayer::recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const {
    graph_.recompute(pass, {.units = x.rows, .dtype = x.dtype, .inputs = {&x, 1}}, saved);
}

void GraphLayer::backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x,
                                const Saved& saved, const Gradients& gradients, Tensor dx) const {
    pass.input.all();
    graph_.backward_input(pass,
                          {.units = x.rows,
                           .dtype = x.dtype,
                           .inputs = {&x, 1},
                           .outside_gradients = {&dy, 1},
                           .input_gradients = {&dx, 1}},
                          saved, gradients);
    pass.output.all();
}

void GraphLayer::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x,
                                 const Saved& saved, const Gradients& gradients) const {
    graph_.backward_weight(
        pass, {.units = x.rows, .dtype = x.dtype, .inputs = {&x, 1}, .outside_gradients = {&dy, 1}},
        saved, gradients);
}

}  // namespace vocabpipe

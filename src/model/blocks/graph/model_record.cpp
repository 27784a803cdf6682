// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/graph/model_record.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace vocabpipe {

namespace {

/// [layer]
std::vector<int> stage_of_layers(const std::vector<int>& layers_per_stage) {
    std::vector<int> stages;
    for (size_t stage = 0; stage < layers_per_stage.size(); ++stage) {
        stages.insert(stages.end(), static_cast<size_t>(layers_per_stage[stage]),
                      static_cast<int>(stage));
    }
    return stages;
}

/// Whether every stage that reads the node makes it.
bool is_made_everywhere(const GraphNode& node) {
    return node.operation && node.inputs.empty() && !node.operation->trains();
}

bool contains(const std::vector<int>& stages, int stage) {
    return std::ranges::find(stages, stage) != stages.end();
}

}  // namespace

std::vector<ValueAcross> values_across(const ModelRecord& model,
                                       const std::vector<int>& layers_per_stage) {
    const std::vector<int> stages = stage_of_layers(layers_per_stage);
    const auto stage_of = [&](size_t node) { return stages[index_of(model.nodes[node].layer)]; };
    std::vector<std::set<int>> readers(model.nodes.size());
    for (size_t node = 0; node < model.nodes.size(); ++node) {
        for (const int input : model.nodes[node].inputs) {
            readers[index_of(input)].insert(stage_of(node));
        }
    }
    if (model.output >= 0) readers[index_of(model.output)].insert(stages.back());
    std::vector<ValueAcross> across;
    for (size_t node = 0; node < model.nodes.size(); ++node) {
        if (is_made_everywhere(model.nodes[node])) continue;
        ValueAcross value{.node = static_cast<int>(node), .maker = stage_of(node), .readers = {}};
        for (const int reader : readers[node]) {
            if (reader > value.maker) value.readers.push_back(reader);
        }
        if (!value.readers.empty()) across.push_back(std::move(value));
    }
    return across;
}

StageGraph graph_of_stage(ModelRecord model, const std::vector<int>& layers_per_stage, int stage) {
    const std::vector<int> stages = stage_of_layers(layers_per_stage);
    const std::vector<ValueAcross> across = values_across(model, layers_per_stage);
    const bool last = stage == stages.back();
    StageGraph part;
    std::vector<int> place(model.nodes.size(), -1);  // in the part
    const auto take = [&](int node) {
        place[index_of(node)] = static_cast<int>(part.nodes.size());
        return &part.nodes.emplace_back();
    };
    const auto take_input = [&](int node) {
        const GraphNode& of = model.nodes[index_of(node)];
        *take(node) = {.operation = nullptr,
                       .inputs = {},
                       .rows = of.rows,
                       .columns = of.columns,
                       .name = of.name,
                       .layer = of.layer};
    };
    if (stage == 0 && model.embedded >= 0) take_input(model.embedded);
    for (const ValueAcross& value : across) {
        if (!contains(value.readers, stage)) continue;
        take_input(value.node);
        ++part.inputs;
        if (value.readers.back() == stage) continue;
        part.ends.read_later.push_back(place[index_of(value.node)]);
        ++part.read_later;
    }
    const auto is_of_stage = [&](const GraphNode& node) {
        return stages[index_of(node.layer)] == stage;
    };
    std::vector<bool> read(model.nodes.size());
    for (const GraphNode& node : model.nodes) {
        if (!is_of_stage(node)) continue;
        for (const int input : node.inputs) read[index_of(input)] = true;
    }
    if (last && model.output >= 0) read[index_of(model.output)] = true;
    for (int n = 0; n < std::ssize(model.nodes); ++n) {
        GraphNode& node = model.nodes[index_of(n)];
        const bool own = is_made_everywhere(node) ? read[index_of(n)] : is_of_stage(node);
        if (!node.operation || !own) continue;
        for (int& input : node.inputs) input = place[index_of(input)];
        *take(n) = std::move(node);
    }
    for (const ValueAcross& value : across) {
        if (value.maker != stage) continue;
        part.ends.outputs.push_back(place[index_of(value.node)]);
    }
    if (last && model.output >= 0) {
        part.ends.outputs.push_back(place[index_of(model.output)]);
    }
    return part;
}

std::vector<StageGraph> graphs_of_layers(ModelRecord model) {
    std::vector<StageGraph> parts(static_cast<size_t>(model.layers));
    std::vector<std::map<int, int>> places(parts.size());  // of nodes, in each part
    std::vector<bool> leaves(model.nodes.size());
    if (model.output >= 0) leaves[index_of(model.output)] = true;
    std::vector<size_t> layers;
    for (const GraphNode& node : model.nodes) layers.push_back(index_of(node.layer));
    for (int n = 0; n < std::ssize(model.nodes); ++n) {
        GraphNode& node = model.nodes[index_of(n)];
        if (!node.operation) continue;
        std::vector<GraphNode>& nodes = parts[layers[index_of(n)]].nodes;
        std::map<int, int>& place = places[layers[index_of(n)]];
        for (int& input : node.inputs) {
            const auto [found, is_new] = place.emplace(input, std::ssize(nodes));
            if (is_new) {
                const GraphNode& of = model.nodes[index_of(input)];
                nodes.push_back({.operation = nullptr,
                                 .inputs = {},
                                 .rows = of.rows,
                                 .columns = of.columns,
                                 .name = "",
                                 .layer = node.layer});
            }
            if (layers[index_of(input)] != layers[index_of(n)]) leaves[index_of(input)] = true;
            input = found->second;
        }
        place[n] = static_cast<int>(std::ssize(nodes));
        nodes.push_back(std::move(node));
    }
    for (int n = 0; n < std::ssize(model.nodes); ++n) {
        const auto found = places[layers[index_of(n)]].find(n);
        if (!leaves[index_of(n)] || found == places[layers[index_of(n)]].end()) continue;
        parts[layers[index_of(n)]].ends.outputs.push_back(found->second);
    }
    return parts;
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/model_layers.hpp"

#include "src/model/blocks/graph/model_record.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace vocabpipe {

ModelLayers::ModelLayers(const ModelConfig& config, const LayerTeams& teams) {
    if (config.model_forward) {
        count_own(config);
        return;
    }
    // Names and initial values differ in all layers, but have no size.
    std::vector<std::tuple<int64_t, bool, bool, int>> kinds;
    for (int layer = 0; layer < config.num_layers; ++layer) {
        const std::tuple kind(config.window(layer), config.has_rope(layer),
                              config.moe.in_layer(layer),
                              // The user's own: nobody knows which are alike.
                              config.layer_forward ? layer : 0);
        const auto found = std::ranges::find(kinds, kind);
        kind_of_.push_back(static_cast<size_t>(found - kinds.begin()));
        if (found != kinds.end()) continue;
        kinds.push_back(kind);
        kinds_.emplace_back(config, layer, teams);
    }
}

void ModelLayers::count_own(const ModelConfig& config) {
    std::map<int, ParameterCount> counts;  // the function may have other layers than it should
    std::vector<StageGraph> parts = graphs_of_layers(
        record_model(config, [&](int layer) -> ParameterSource& { return counts[layer]; }));
    for (size_t layer = 0; layer < parts.size(); ++layer) {
        parts[layer].ends.seq_length = config.seq_length;
        kinds_.emplace_back(
            std::move(counts[static_cast<int>(layer)]),
            GraphLayer(PlannedGraph(std::move(parts[layer].nodes), parts[layer].ends)));
        kind_of_.push_back(layer);
    }
}

}  // namespace vocabpipe

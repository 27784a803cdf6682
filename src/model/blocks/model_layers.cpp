// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/model_layers.hpp"

#include <algorithm>
#include <tuple>

namespace vocabpipe {

ModelLayers::ModelLayers(const ModelConfig& config, const LayerTeams& teams) {
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

}  // namespace vocabpipe

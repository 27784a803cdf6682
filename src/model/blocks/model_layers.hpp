// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/layer_options.hpp"
#include "src/model/blocks/model_layer.hpp"
#include "src/model/parameter_source.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace vocabpipe {

/// A layer without its weights: for sizes and costs.
struct CountedLayer {
    CountedLayer(const ModelConfig& config, int layer, const LayerTeams& teams)
        : block(config, layer, teams, parameters) {}
    CountedLayer(ParameterCount counted, GraphLayer layer)
        : parameters(std::move(counted)), block(std::move(layer)) {}

    ParameterCount parameters;
    ModelLayer block;
};

/// All layers of a model without their weights. Layers that are alike are one.
class ModelLayers {
public:
    explicit ModelLayers(const ModelConfig& config, const LayerTeams& teams = {});

    [[nodiscard]] const CountedLayer& operator[](int layer) const {
        return kinds_[kind_of_[static_cast<size_t>(layer)]];
    }
    [[nodiscard]] int count() const { return static_cast<int>(kind_of_.size()); }
    /// make(const CountedLayer&) of every layer; called once for layers that are alike.
    template <typename Make>
    [[nodiscard]] auto map(const Make& make) const {
        std::vector<decltype(make(kinds_.front()))> of_kinds, of_layers;
        for (const CountedLayer& kind : kinds_) of_kinds.push_back(make(kind));
        for (const size_t kind : kind_of_) of_layers.push_back(of_kinds[kind]);
        return of_layers;
    }

private:
    /// The layers of a ModelConfig::model_forward.
    void count_own(const ModelConfig& config);

    std::vector<CountedLayer> kinds_;
    std::vector<size_t> kind_of_;  ///< [layer]
};

}  // namespace vocabpipe

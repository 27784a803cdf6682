// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/decoder_layer.hpp"
#include "src/model/blocks/graph/graph_layer.hpp"
#include "src/model/blocks/layer_options.hpp"
#include "src/model/parameter_source.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <type_traits>
#include <utility>
#include <variant>

namespace vocabpipe {

/// A layer of a model: the library's, or the user's own (ModelConfig::layer_forward). Functions as
/// in DecoderLayer.
class ModelLayer {
public:
    using Saved = std::variant<DecoderLayer::Saved, GraphLayer::Saved>;
    using Gradients = std::variant<DecoderLayer::Gradients, GraphLayer::Gradients>;

    /// `layer`: as in layer_options.hpp.
    ModelLayer(const ModelConfig& config, int layer, const LayerTeams& teams,
               ParameterSource& parameters)
        : layer_(make(config, layer, teams, parameters)) {}
    explicit ModelLayer(GraphLayer layer) : layer_(std::move(layer)) {}

    [[nodiscard]] Saved saved_views(SavedViews& views) const {
        return std::visit([&](const auto& layer) -> Saved { return layer.saved_views(views); },
                          layer_);
    }
    [[nodiscard]] Gradients gradient_views(TokenViews& views) const {
        return std::visit(
            [&](const auto& layer) -> Gradients { return layer.gradient_views(views); }, layer_);
    }
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const {
        return std::visit([&](const auto& layer) { return layer.scratch(use); }, layer_);
    }

    void forward(const StagePass& pass, ConstTensor x, const Saved& saved, Tensor out) const {
        visit([&](const auto& layer, const auto& of) { layer.forward(pass, x, of, out); }, saved);
    }
    void recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const {
        visit([&](const auto& layer, const auto& of) { layer.recompute(pass, x, of); }, saved);
    }
    void backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                        const Gradients& gradients, Tensor dx) const {
        visit(
            [&](const auto& layer, const auto& of) {
                layer.backward_input(pass, dy, x, of, gradients_of(layer, gradients), dx);
            },
            saved);
    }
    void backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x, const Saved& saved,
                         const Gradients& gradients) const {
        visit(
            [&](const auto& layer, const auto& of) {
                layer.backward_weight(pass, dy, x, of, gradients_of(layer, gradients));
            },
            saved);
    }

    [[nodiscard]] BlockWork work(int64_t seq_length) const {
        return std::visit([&](const auto& layer) { return layer.work(seq_length); }, layer_);
    }

private:
    using Either = std::variant<DecoderLayer, GraphLayer>;

    static Either make(const ModelConfig& config, int layer, const LayerTeams& teams,
                       ParameterSource& parameters) {
        if (config.layer_forward) {
            return Either(std::in_place_type<GraphLayer>, config, layer, parameters);
        }
        return Either(std::in_place_type<DecoderLayer>, decoder_layer_options(config, layer, teams),
                      parameters);
    }
    /// Calls use(the layer, its part of `saved`).
    template <typename Use>
    void visit(const Use& use, const Saved& saved) const {
        std::visit(
            [&](const auto& layer) {
                use(layer, std::get<typename std::decay_t<decltype(layer)>::Saved>(saved));
            },
            layer_);
    }
    template <class Layer>
    static const typename Layer::Gradients& gradients_of(const Layer& /*layer*/,
                                                         const Gradients& gradients) {
        return std::get<typename Layer::Gradients>(gradients);
    }

    Either layer_;
};

}  // namespace vocabpipe

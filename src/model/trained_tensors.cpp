// SPDX-License-Identifier: Apache-2.0
#include "src/model/trained_tensors.hpp"

#include "src/model/blocks/embedded_tokens.hpp"
#include "src/model/blocks/layer_options.hpp"
#include "src/model/blocks/norm.hpp"

#include <algorithm>
#include <cstddef>

namespace vocabpipe {

namespace {

/// Elements that a token meets: of experts those of its own.
double met(const ElementCount& count, const MoeConfig& moe) {
    const auto experts = static_cast<double>(count.of(TensorCut::experts));
    const double own =
        moe.experts == 0 ? 1 : static_cast<double>(moe.top_k) / static_cast<double>(moe.experts);
    return static_cast<double>(count.total()) - (1 - own) * experts;
}

/// Divides the tensors with the ids from `id` on, and moves `id` behind them.
TrainedTensors::Part divide(const ParameterCount& count, const MoeConfig& moe,
                            const std::vector<bool>& frozen, size_t& id) {
    TrainedTensors::Part part;
    for (const ParameterCount::Counted& tensor : count.all()) {
        (!frozen.empty() && frozen[id] ? part.frozen : part.trained).add(tensor);
        ++id;
    }
    const double all = met(part.trained, moe) + met(part.frozen, moe);
    if (all > 0) part.share = met(part.trained, moe) / all;
    return part;
}

}  // namespace

TrainedTensors::TrainedTensors(const ModelConfig& config, const ModelLayers& layers,
                               const std::vector<bool>& frozen)
    : all_(frozen.empty()) {
    ParameterCount positions, final_norm;
    if (!config.model_forward) {
        (void)EmbeddedTokens(embedded_tokens_options(config), positions);
        (void)Norm(final_norm_options(config), final_norm);
    }
    // In the order of model_parameters().
    size_t id = config.embeds_tokens ? 1 : 0;
    positions_ = divide(positions, config.moe, frozen, id);
    for (int layer = 0; layer < layers.count(); ++layer) {
        layers_.push_back(divide(layers[layer].parameters, config.moe, frozen, id));
        routed_.push_back(config.moe.in_layer(layer));
    }
    final_norm_ = divide(final_norm, config.moe, frozen, id);
    if (all_) return;
    embedding_ = !frozen.front();
    output_ = config.tied ? embedding_ : !frozen[id];
}

int TrainedTensors::first_backward_layer() const {
    if (embedding_ || positions_.any()) return 0;
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
        if (layers_[layer].any() || routed_[layer]) return static_cast<int>(layer);
    }
    return static_cast<int>(layers_.size());
}

std::vector<double> TrainedTensors::stage_shares(const std::vector<int>& layers_per_stage) const {
    std::vector<double> shares;
    auto layer = layers_.begin();
    for (const int layers : layers_per_stage) {
        double sum = 0;
        for (const auto end = layer + layers; layer != end; ++layer) sum += layer->share;
        shares.push_back(layers == 0 ? 1 : sum / layers);
    }
    return shares;
}

TrainedParts TrainedTensors::parts(const std::vector<int>& layers_per_stage) const {
    TrainedParts trained{.stages = {}, .embedding = embedding_};
    const size_t stages = layers_per_stage.size();
    size_t first = stages - 1, layer = 0;
    for (size_t stage = 0; stage < stages; ++stage) {
        bool any =
            all_ || (stage == 0 && positions_.any()) || (stage + 1 == stages && final_norm_.any());
        bool routed = false;
        for (int own = 0; own < layers_per_stage[stage]; ++own, ++layer) {
            any = any || layers_[layer].any();
            routed = routed || routed_[layer];
        }
        trained.stages.push_back(any);
        if (any || routed) first = std::min(first, stage);
    }
    trained.first_backward = embedding_ ? 0 : static_cast<int>(first);
    return trained;
}

}  // namespace vocabpipe

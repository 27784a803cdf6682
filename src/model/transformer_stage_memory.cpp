// SPDX-License-Identifier: Apache-2.0
// The layout of what the passes of a stage leave for each other: views of the bytes that the
// executor hands them, and the number of these bytes.
#include "src/model/transformer_stage.hpp"

#include <algorithm>

namespace vocabpipe {

TokenViews TransformerStage::tokens(Views& views) const {
    return {views, tokens_, dtype_};
}

TransformerStage::Saved TransformerStage::forward_views(Views& memory) const {
    const Tensor turns[] = {tokens(memory).take(hidden_size_), tokens(memory).take(hidden_size_)};
    Saved saved;
    for (size_t i = 0; i <= layers_.size(); ++i) {
        const bool own = i > 0 || embedded_tokens_;
        const bool read = i < layers_.size() || final_norm_;
        saved.inputs.push_back(own && read ? turns[i % 2] : Tensor());
    }
    if (final_norm_) {
        TokenViews views = tokens(memory);
        saved.final_statistics = final_norm_->statistics_view(views);
    }
    const Views rest = memory;
    for (const DecoderLayer& layer : layers_) {
        Views of_layer = rest;
        SavedViews views{.costly = tokens(of_layer), .cheap = tokens(of_layer)};
        saved.layers.push_back(layer.saved_views(views));
        if (of_layer.used() > memory.used()) memory = of_layer;
    }
    return saved;
}

TransformerStage::Saved TransformerStage::saved_views(Views& saved_memory,
                                                      Views& recomputed_memory) const {
    if (options_.cache != nullptr) return forward_views(saved_memory);
    const Recompute recompute = options_.recompute;
    SavedViews views{
        .costly = tokens(recompute == Recompute::full ? recomputed_memory : saved_memory),
        .cheap = tokens(recompute == Recompute::none ? saved_memory : recomputed_memory)};
    Saved saved;
    for (size_t i = 0; i <= layers_.size(); ++i) {
        const bool own = i > 0 || embedded_tokens_;
        const bool read = i < layers_.size() || final_norm_;
        saved.inputs.push_back(own && read ? views.costly.take(hidden_size_) : Tensor());
    }
    for (const DecoderLayer& layer : layers_) saved.layers.push_back(layer.saved_views(views));
    if (final_norm_) saved.final_statistics = final_norm_->statistics_view(views.costly);
    return saved;
}

TransformerStage::Saved TransformerStage::saved_views(Activations activations) const {
    Views saved(activations.saved);
    Views recomputed(activations.recomputed);
    return saved_views(saved, recomputed);
}

TransformerStage::ForWeight TransformerStage::weight_views(Views& memory) const {
    TokenViews views = tokens(memory);
    ForWeight left;
    for (const DecoderLayer& layer : layers_) {
        left.layers.push_back(layer.gradient_views(views));
        left.layer_dy.push_back(views.take(hidden_size_));
    }
    left.stage_dy = views.take(hidden_size_);
    left.stage_dx = views.take(hidden_size_);
    return left;
}

Scratch TransformerStage::scratch_views(Views& memory) const {
    const int64_t elements =
        std::max(tokens_.all * scratch_.columns, tokens_.own * scratch_.own_columns);
    const Bytes rows = memory.take_bytes(elements * size_of(dtype_));
    Scratch scratch{.rows = Tensor(rows.data(), tokens_.all, scratch_.columns, dtype_),
                    .workspace = memory.take_bytes(scratch_.workspace)};
    if (options_.tensor.ranks > 1) {
        const int64_t partials =
            generates_in_team() ? options_.tensor.ranks * tokens_.all : tokens_.all;
        scratch.gathered = memory.take(tiles_.rows(), hidden_size_, dtype_);
        scratch.received = memory.take(partials, hidden_size_, dtype_);
    }
    return scratch;
}

Tensor TransformerStage::whole_output_view(Views& memory) const {
    return generates_in_team() ? tokens(memory).all().take(hidden_size_) : Tensor();
}

Scratch TransformerStage::weight_scratch_views(Views& memory) const {
    if (options_.expert.ranks > 1) return scratch_views(memory);  // in case of several waves
    Scratch scratch;
    if (options_.tensor.ranks > 1) scratch.gathered = tokens(memory).all().take(hidden_size_);
    return scratch;
}

TransformerStage::BackwardMemory TransformerStage::backward_views(Views& memory) const {
    TokenViews views = tokens(memory);
    BackwardMemory of{.next = views.take(hidden_size_),
                      .other = views.take(hidden_size_),
                      .scratch = scratch_views(memory),
                      .layers = {}};
    const Views rest = memory;
    for (const DecoderLayer& layer : layers_) {
        Views of_layer = rest;
        TokenViews layer_views = tokens(of_layer);
        of.layers.push_back(layer.gradient_views(layer_views));
        if (of_layer.used() > memory.used()) memory = of_layer;
    }
    return of;
}

StageBytes TransformerStage::bytes() const {
    StageBytes bytes;
    Views saved;
    Views recomputed;
    saved_views(saved, recomputed);
    bytes.saved = saved.used();
    bytes.recomputed = recomputed.used();
    Views forward;
    scratch_views(forward);
    bytes.input_gradient_workspace = forward.used();
    whole_output_view(forward);
    bytes.forward_workspace = forward.used();
    Views backward;
    backward_views(backward);
    bytes.backward_workspace = backward.used();
    Views of_weight;
    weight_scratch_views(of_weight);
    bytes.weight_gradient_workspace = of_weight.used();
    Views for_weight;
    weight_views(for_weight);
    bytes.for_weight = for_weight.used();
    return bytes;
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/stage_memory.hpp"

#include "src/model/tensor_shard.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe {

StageMemory::StageMemory(const StageMemoryOptions& options, std::vector<const ModelLayer*> layers,
                         const Norm* final_norm, const ScratchFor& use)
    : options_(options),
      layers_(std::move(layers)),
      final_norm_(final_norm),
      tensor_(use.tensor),
      tokens_{.own = options.generates ? use.sequences * use.seq_length : use.own_tokens(),
              .all = use.sequences * use.seq_length},
      dtype_(use.dtype),
      scratch_{.own_columns = options.hidden_size} {
    for (const ModelLayer* layer : layers_) scratch_ = scratch_.or_larger(layer->scratch(use));
}

StageMemory::Saved StageMemory::forward_views(Views& memory) const {
    const Tensor turns[] = {tokens(memory).take(options_.hidden_size),
                            tokens(memory).take(options_.hidden_size)};
    Saved saved;
    for (size_t i = 0; i <= layers_.size(); ++i) {
        const bool own = i > 0 || options_.embeds;
        const bool read = i < layers_.size() || final_norm_;
        saved.inputs.push_back(own && read ? turns[i % 2] : Tensor());
    }
    if (final_norm_) {
        TokenViews views = tokens(memory);
        saved.final_statistics = final_norm_->statistics_view(views);
    }
    const Views rest = memory;
    for (const ModelLayer* layer : layers_) {
        Views of_layer = rest;
        SavedViews views{.costly = tokens(of_layer), .cheap = tokens(of_layer)};
        saved.layers.push_back(layer->saved_views(views));
        if (of_layer.used() > memory.used()) memory = of_layer;
    }
    return saved;
}

StageMemory::Saved StageMemory::saved_views(Views& saved_memory, Views& recomputed_memory) const {
    if (options_.generates) return forward_views(saved_memory);
    const Recompute recompute = options_.recompute;
    SavedViews views{
        .costly = tokens(recompute == Recompute::full ? recomputed_memory : saved_memory),
        .cheap = tokens(recompute == Recompute::none ? saved_memory : recomputed_memory)};
    Saved saved;
    for (size_t i = 0; i <= layers_.size(); ++i) {
        const bool own = i > 0 || options_.embeds;
        const bool read = i < layers_.size() || final_norm_;
        saved.inputs.push_back(own && read ? views.costly.take(options_.hidden_size) : Tensor());
    }
    for (const ModelLayer* layer : layers_) saved.layers.push_back(layer->saved_views(views));
    if (final_norm_) saved.final_statistics = final_norm_->statistics_view(views.costly);
    return saved;
}

StageMemory::Saved StageMemory::saved_views(Activations activations) const {
    Views saved(activations.saved);
    Views recomputed(activations.recomputed);
    return saved_views(saved, recomputed);
}

StageMemory::ForWeight StageMemory::weight_views(Views& memory) const {
    TokenViews views = tokens(memory);
    ForWeight left;
    for (const ModelLayer* layer : layers_) {
        left.layers.push_back(layer->gradient_views(views));
        left.layer_dy.push_back(views.take(options_.hidden_size));
    }
    left.stage_dy = views.take(options_.hidden_size);
    left.stage_dx = views.take(options_.hidden_size);
    return left;
}

void StageMemory::take_adapters(Views& memory, Scratch& scratch) const {
    scratch.adapter_low = tokens(memory).all().take(scratch_.adapter_low);
    scratch.adapter_wide = tokens(memory).all().take(scratch_.adapter_wide);
}

Scratch StageMemory::scratch_views(Views& memory) const {
    const int64_t elements =
        std::max(tokens_.all * scratch_.columns, tokens_.own * scratch_.own_columns);
    const Bytes rows = memory.take_bytes(elements * size_of(dtype_));
    Scratch scratch{.rows = Tensor(rows.data(), tokens_.all, scratch_.columns, dtype_),
                    .workspace = memory.take_bytes(scratch_.workspace)};
    take_adapters(memory, scratch);
    if (tensor_ > 1) {
        // Generation may have any number of tokens, of which members take equally many rows.
        const int64_t padded = largest_part(tokens_.all, tensor_) * tensor_;
        const int64_t partials = options_.generates ? tensor_ * tokens_.all : tokens_.all;
        scratch.gathered = memory.take(padded, options_.hidden_size, dtype_);
        scratch.received = memory.take(partials, options_.hidden_size, dtype_);
    }
    return scratch;
}

Tensor StageMemory::whole_output_view(Views& memory) const {
    return options_.generates && tensor_ > 1 ? tokens(memory).all().take(options_.hidden_size)
                                             : Tensor();
}

Scratch StageMemory::weight_scratch_views(Views& memory) const {
    if (options_.expert > 1) return scratch_views(memory);  // in case of several waves
    Scratch scratch;
    take_adapters(memory, scratch);
    if (tensor_ > 1) scratch.gathered = tokens(memory).all().take(options_.hidden_size);
    return scratch;
}

StageMemory::Backward StageMemory::backward_views(Views& memory) const {
    TokenViews views = tokens(memory);
    Backward of{.next = views.take(options_.hidden_size),
                .other = views.take(options_.hidden_size),
                .scratch = scratch_views(memory),
                .layers = {}};
    const Views rest = memory;
    for (const ModelLayer* layer : layers_) {
        Views of_layer = rest;
        TokenViews layer_views = tokens(of_layer);
        of.layers.push_back(layer->gradient_views(layer_views));
        if (of_layer.used() > memory.used()) memory = of_layer;
    }
    return of;
}

StageBytes StageMemory::bytes() const {
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

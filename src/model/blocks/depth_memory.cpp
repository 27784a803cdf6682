// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/depth_memory.hpp"

#include <algorithm>

namespace vocabpipe {

StageBytes DepthMemory::bytes() const {
    Views saved, recomputed, for_weight, gradients, of_depth, of_team;
    Activations main;
    Bytes main_for_weight;
    static_cast<void>(saved_views(saved, recomputed, main));
    static_cast<void>(weight_views(for_weight, main_for_weight));
    static_cast<void>(gradient_views(gradients));
    static_cast<void>(backward_view(of_depth));
    static_cast<void>(team_scratch(of_team));
    // The stage's layers, those of depths, and exchanges of embedded tokens use it in turn.
    const auto workspace = [&](int64_t StageBytes::*of) {
        return std::max({options_.main.*of, options_.layer.*of, of_team.used()});
    };
    return {.saved = saved.used(),
            .recomputed = recomputed.used(),
            .for_weight = for_weight.used(),
            .forward_workspace = workspace(&StageBytes::forward_workspace),
            .backward_workspace =
                gradients.used() + of_depth.used() + workspace(&StageBytes::backward_workspace),
            .input_gradient_workspace =
                gradients.used() + workspace(&StageBytes::input_gradient_workspace),
            .weight_gradient_workspace = std::max(options_.main.weight_gradient_workspace,
                                                  options_.layer.weight_gradient_workspace)};
}

std::vector<DepthMemory::Saved> DepthMemory::saved_views(Activations all, Activations& main) const {
    Views saved(all.saved);
    Views recomputed(all.recomputed);
    return saved_views(saved, recomputed, main);
}

std::vector<DepthMemory::Saved> DepthMemory::saved_views(Views& saved, Views& recomputed,
                                                         Activations& main) const {
    const auto take = [&](const StageBytes& bytes) {
        return Activations{.saved = saved.take_bytes(bytes.saved),
                           .recomputed = recomputed.take_bytes(bytes.recomputed)};
    };
    main = take(options_.main);
    std::vector<Saved> views;
    TokenViews kept = tokens(saved);
    TokenViews again = tokens(recomputed);
    TokenViews& cheap = options_.recompute == Recompute::none ? kept : again;
    TokenViews& costly = options_.recompute == Recompute::full ? again : kept;
    for (int depth = 0; depth < options_.depths; ++depth) {
        Saved& of = views.emplace_back();
        of.projection = projection_->saved_views(kept, cheap);
        of.x = costly.take(options_.hidden_size);
        of.layer = take(options_.layer);
    }
    return views;
}

DepthMemory::ForWeight DepthMemory::backward_view(Views& views) const {
    TokenViews own = tokens(views);
    ForWeight of;
    of.projection = projection_->gradient_view(own);
    of.dx = own.take(options_.hidden_size);
    return of;
}

std::vector<DepthMemory::ForWeight> DepthMemory::weight_views(Views& views, Bytes& main) const {
    main = views.take_bytes(options_.main.for_weight);
    std::vector<ForWeight> left;
    for (int depth = 0; depth < options_.depths; ++depth) {
        left.push_back(backward_view(views));
        left.back().layer = views.take_bytes(options_.layer.for_weight);
    }
    return left;
}

DepthMemory::Gradients DepthMemory::gradient_views(Views& views) const {
    TokenViews own = tokens(views);
    Gradients gradients;
    gradients.hidden = own.take(options_.hidden_size);
    gradients.embedded = own.take(options_.hidden_size);
    if (has_team()) gradients.all_embedded = own.all().take(options_.hidden_size);
    return gradients;
}

Scratch DepthMemory::team_scratch(Views& views) const {
    if (!has_team()) return {};
    TokenViews all = tokens(views).all();
    return {.rows = {},
            .workspace = {},
            .gathered = all.take(options_.hidden_size),
            .received = all.take(options_.hidden_size)};
}

}  // namespace vocabpipe

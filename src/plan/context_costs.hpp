// SPDX-License-Identifier: Apache-2.0
// What context ranks exchange for attention, and how much of it attention hides.
#pragma once

#include "src/model/blocks/block_work.hpp"
#include "src/plan/model_on_device.hpp"
#include "vocabpipe/context_exchange.hpp"
#include "vocabpipe/plan.hpp"

namespace vocabpipe {

/// Nanoseconds of a layer's exchanges between context ranks; 0 for one rank.
struct ContextCosts {
    double forward = 0, backward = 0;
    int panels = 1;

    /// Attention of a panel of heads runs while the next panel travels, so the first panel is never
    /// hidden.
    [[nodiscard]] double beside(double exchange, double attention) const;
};

[[nodiscard]] ContextCosts context_costs(const ModelOnDevice& model, const Candidate& candidate,
                                         ContextForm form, const BlockWork& work);

/// The form that sends less, among those that the model's heads allow.
[[nodiscard]] ContextForm faster_context_form(const ModelOnDevice& model,
                                              const Candidate& candidate);

}  // namespace vocabpipe

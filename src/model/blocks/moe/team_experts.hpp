// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/moe/experts.hpp"
#include "src/model/blocks/moe/kept_on_host.hpp"
#include "src/model/blocks/moe/team_exchange.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace vocabpipe {

/// Routes of the tokens, as F leaves them.
struct TeamRoutes {
    Tensor chosen;  ///< all members' choices and weights, (2 e n, k): gather_routes()
    Tensor lists;   ///< lists of a wave: place_wave()
};

/// Experts that e ranks share; each rank has E x / e of them, of each its f / x columns, and tokens
/// of its own. A token goes to all x ranks of each of its experts, and home adds up what these
/// make: products over f are cut as those of tensor ranks, and their sum is a part of the combine.
/// A member computes at most R rows at once, whatever the tokens choose: further rows are
/// dispatched and computed in further waves through the same memory. A backward finds wave 0 where
/// F left it and recomputes the others. All members make the same calls in the same order.
///
/// Only F reads all members' choices on the host, once, and waits there for a device with streams.
/// It leaves the lists of wave 0 in memory, and keeps on the host what later passes need.
class TeamExperts {
public:
    /// `weights`: this member's.
    TeamExperts(const ExpertsOptions& options, const ExpertWeights& weights);

    /// What F leaves of wave 0: R rows.
    [[nodiscard]] Experts::Saved saved_views(SavedViews& views) const;
    [[nodiscard]] TeamRoutes routes_views(TokenViews& views) const;
    [[nodiscard]] Experts::Gradients gradient_views(TokenViews& views) const;
    /// For `tokens` own tokens.
    [[nodiscard]] TeamMemory memory(Views& views, int64_t tokens, DType dtype) const;

    /// As Experts::forward(), with x, residual and out (n, h) of own tokens. `chosen`: the router's
    /// choice and weights (n, k). `meanwhile` runs while the first copies travel.
    void forward(const StagePass& pass, const TeamMemory& memory, ConstTensor x,
                 const ExpertRows& chosen, const TeamRoutes& routes, const Experts::Saved& saved,
                 ConstTensor residual, Tensor out, const Meanwhile& meanwhile) const;
    /// Recomputes the cheap tensors of `saved`: dispatches x.
    void recompute(const StagePass& pass, const TeamMemory& memory, ConstTensor x,
                   const TeamRoutes& routes, const Experts::Saved& saved) const;
    /// dx (n, h): the gradient of x; dweights (n, k) fp32: of the weights. A whole backward also
    /// makes the gradients of backward_weight().
    void backward_input(const StagePass& pass, const TeamMemory& memory, ConstTensor dy,
                        ConstTensor x, const TeamRoutes& routes, const Experts::Saved& saved,
                        const Experts::Gradients& gradients, Tensor dweights, Tensor dx,
                        const Meanwhile& meanwhile) const;
    /// Wave 0 needs no communication; further waves dispatch x and dy again.
    void backward_weight(const StagePass& pass, const TeamMemory& memory, ConstTensor dy,
                         ConstTensor x, const TeamRoutes& routes, const Experts::Saved& saved,
                         const Experts::Gradients& gradients) const;

private:
    struct Pass;
    struct Kept;
    [[nodiscard]] TeamSizes sizes(int64_t tokens, DType dtype) const;
    [[nodiscard]] int64_t rows_per_wave(int64_t tokens) const;
    /// The later pass of a microbatch, with what its F kept. Throws UsageError without an F.
    [[nodiscard]] Pass after_forward(const StagePass& pass, const TeamMemory& memory,
                                     ConstTensor dy, ConstTensor x, const TeamRoutes& routes,
                                     const Experts::Saved& saved,
                                     const Experts::Gradients* gradients = nullptr) const;
    /// Makes in, gate_up and act of a wave.
    void make_inside(const Pass& of, const PlacedWave& wave, const Meanwhile& meanwhile) const;
    /// Makes the gradients of out and gate_up of the wave, and of its rows' weights.
    void make_gradients(const Pass& of, const PlacedWave& wave, const Meanwhile& meanwhile) const;
    void add_weight_gradients(const Pass& of, const PlacedWave& wave, bool accumulate) const;

    ExpertsOptions options_;
    ExpertWeights weights_;
    std::shared_ptr<KeptOnHost<Kept>> kept_;  ///< keyed by TeamRoutes::chosen
};

}  // namespace vocabpipe

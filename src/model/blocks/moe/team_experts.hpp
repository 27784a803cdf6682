// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/moe/experts.hpp"
#include "src/model/blocks/moe/kept_on_host.hpp"
#include "src/model/blocks/moe/team_exchange.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace vocabpipe {

/// Who goes where, as F leaves it.
struct TeamRoutes {
    Tensor chosen;  ///< all members' choices and weights, (2 e n, k): gather_routes()
    Tensor lists;   ///< of a wave: place_wave()
};

/// Experts that e ranks share, each of which has E / e of them and tokens of its own. A member
/// computes at most R rows at once, whatever the tokens choose: what exceeds that is dispatched and
/// computed in further waves through the same memory. A backward finds wave 0 where F left it and
/// makes the others again. All members make the same calls in the same order.
///
/// F alone reads on the host what all members chose, once: there a device with streams is waited
/// for. It leaves the lists of wave 0 in memory, and on the host what the passes after it have to
/// know.
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

    /// As Experts::forward(), with x, residual and out (n, h) of own tokens. `choice`, `weights`
    /// (n, k): what the router made of them. `meanwhile` runs while the first copies travel.
    void forward(const StagePass& pass, const TeamMemory& memory, ConstTensor x,
                 const ExpertRows& chosen, const TeamRoutes& routes, const Experts::Saved& saved,
                 ConstTensor residual, Tensor out, const Meanwhile& meanwhile) const;
    /// Makes the cheap tensors of `saved` again: dispatches x.
    void recompute(const StagePass& pass, const TeamMemory& memory, ConstTensor x,
                   const TeamRoutes& routes, const Experts::Saved& saved) const;
    /// dx (n, h): the gradient of x; dweights (n, k) fp32: of the weights. In a whole backward also
    /// backward_weight()'s.
    void backward_input(const StagePass& pass, const TeamMemory& memory, ConstTensor dy,
                        ConstTensor x, const TeamRoutes& routes, const Experts::Saved& saved,
                        const Experts::Gradients& gradients, Tensor dweights, Tensor dx,
                        const Meanwhile& meanwhile) const;
    /// Of wave 0 without communication; dispatches x and dy again for further ones.
    void backward_weight(const StagePass& pass, const TeamMemory& memory, ConstTensor dy,
                         ConstTensor x, const TeamRoutes& routes, const Experts::Saved& saved,
                         const Experts::Gradients& gradients) const;

private:
    struct Pass;
    struct Kept;
    [[nodiscard]] TeamSizes sizes(int64_t tokens, DType dtype) const;
    [[nodiscard]] int64_t rows_per_wave(int64_t tokens) const;
    /// Of a microbatch that F has left.
    [[nodiscard]] Pass after_forward(const StagePass& pass, const TeamMemory& memory,
                                     ConstTensor dy, ConstTensor x, const TeamRoutes& routes,
                                     const Experts::Saved& saved,
                                     const Experts::Gradients* gradients = nullptr) const;
    /// in, gate_up and act of a wave.
    void make_inside(const Pass& of, const PlacedWave& wave, const Meanwhile& meanwhile) const;
    /// out and gate_up of the wave's gradients, and its rows' gradients of weights.
    void make_gradients(const Pass& of, const PlacedWave& wave, const Meanwhile& meanwhile) const;
    void add_weight_gradients(const Pass& of, const PlacedWave& wave, bool accumulate) const;

    ExpertsOptions options_;
    ExpertWeights weights_;
    std::shared_ptr<KeptOnHost<Kept>> kept_;  ///< by TeamRoutes::chosen
};

}  // namespace vocabpipe

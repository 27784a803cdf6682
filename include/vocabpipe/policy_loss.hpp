// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/policy_loss_options.hpp"
#include "vocabpipe/token_loss.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// The clipped objective of PPO (Schulman et al. 2017) and GRPO (Shao et al. 2024) for a token with
/// log-probability l, A its advantage, l_old that of the policy that sampled it, l_ref that of the
/// reference, H its entropy:
///
///     r    = exp(l - l_old)
///     loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) + kl_coefficient K -
///     entropy_coefficient H K    = l - l_ref (k1), (l - l_ref)^2 / 2 (k2), exp(l_ref - l) - 1 -
///     (l_ref - l) (k3)
///
/// Columns of the microbatch: A, l_old, and l_ref if kl_coefficient is not 0. Runs on every device.
class PolicyLoss final : public TokenLoss {
public:
    /// UsageError for options that are not numbers, or negative clips.
    explicit PolicyLoss(const PolicyLossOptions& options = {});
    [[nodiscard]] TokenRecords reads() const override;
    [[nodiscard]] int64_t columns() const override { return options_.columns(); }
    [[nodiscard]] bool has_entropy_slope() const override {
        return options_.entropy_coefficient != 0;
    }
    void evaluate(Context& ctx, const TokenLossInput& in,
                  const TokenLossOutput& out) const override;

private:
    PolicyLossOptions options_;
};

/// GRPO's advantages: (reward - mean) / (standard deviation + 1e-6) within each group of
/// `group_size` answers to one question, with the deviation of a sample (n - 1). `rewards`: whole
/// groups, one after the other. A group of one has 0. UsageError for an incomplete group.
[[nodiscard]] std::vector<float> group_advantages(std::span<const float> rewards,
                                                  int64_t group_size);

/// Log-probabilities of two answers to one question, each added up over the answer's tokens.
struct PreferencePair {
    double chosen = 0;              ///< of the model that is trained, the better answer
    double rejected = 0;            ///< of it, the worse one
    double chosen_reference = 0;    ///< of the reference, the better answer
    double rejected_reference = 0;  ///< of it, the worse one
};

/// What a pair adds to a step.
struct PreferenceLoss {
    double loss = 0;  ///< of the pair
    /// Those of every token of the chosen answer; of the rejected answer's tokens the negative.
    double advantage = 0;
};

/// Direct preference optimization (Rafailov et al. 2023): loss = -log sigmoid(beta d), with d =
/// (chosen - chosen_reference) - (rejected - rejected_reference). A forward-only step gives the
/// log-probabilities. With them as l_old, a PolicyLoss without a divergence has the gradient of the
/// pair's loss in the next step: its ratio is 1, so the slope by a token's log-probability is minus
/// its advantage.
[[nodiscard]] PreferenceLoss preference_loss(const PreferencePair& pair, double beta);

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/distillation_options.hpp"
#include "vocabpipe/token_loss.hpp"

#include <cstdint>

namespace vocabpipe {

/// Distillation against lists of a teacher (Hinton et al. 2015): with t_i the teacher's and p_i the
/// model's probability of entry i of a token's list, and a = DistillationOptions::kl_share,
///
///     loss = (1 - a) (-log p of the label) + a sum over the list of t_i (log t_i - log p_i)
///
/// Probabilities are those of the whole vocabulary; what neither list nor label names is dropped.
/// Columns of the microbatch: the k log t, -infinity where there is no entry, then the k ids, as
/// TokenRecord::top_logprobs has them. Runs on every device, in every vocabulary mode.
class DistillationLoss final : public TokenLoss {
public:
    /// UsageError for a list of fewer than 1 or more than 64 entries, or a share outside of 0 to 1.
    explicit DistillationLoss(const DistillationOptions& options);
    [[nodiscard]] TokenRecords reads() const override {
        return {TokenRecord::logprob, TokenRecord::logsumexp};
    }
    [[nodiscard]] int64_t columns() const override { return options_.columns(); }
    [[nodiscard]] int64_t listed() const override { return options_.top_k; }
    void evaluate(Context& ctx, const TokenLossInput& in,
                  const TokenLossOutput& out) const override;

private:
    DistillationOptions options_;
};

}  // namespace vocabpipe

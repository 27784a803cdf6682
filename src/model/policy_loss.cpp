// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/policy_loss.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/operators.hpp"

#include <cmath>
#include <string>

namespace vocabpipe {

PolicyLoss::PolicyLoss(const PolicyLossOptions& options) : options_(options) {
    const auto require = [](bool holds, const char* name, float value, const char* limit) {
        if (holds) return;
        throw UsageError(std::string("PolicyLossOptions::") + name + " " + std::to_string(value) +
                         ": must be " + limit);
    };
    require(options.clip_low >= 0 && options.clip_low <= 1, "clip_low", options.clip_low,
            "from 0 to 1");
    require(options.clip_high >= 0, "clip_high", options.clip_high, "at least 0");
    require(std::isfinite(options.kl_coefficient), "kl_coefficient", options.kl_coefficient,
            "a number");
    require(std::isfinite(options.entropy_coefficient), "entropy_coefficient",
            options.entropy_coefficient, "a number");
}

TokenRecords PolicyLoss::reads() const {
    TokenRecords records{TokenRecord::logprob};
    if (has_entropy_slope()) records = records | TokenRecords{TokenRecord::entropy};
    return records;
}

void PolicyLoss::evaluate(Context& ctx, const TokenLossInput& in,
                          const TokenLossOutput& out) const {
    const std::span<const float> entropy =
        has_entropy_slope() ? in.of(TokenRecord::entropy) : std::span<const float>();
    ctx.operators().policy_loss(ctx, options_, in.labels, in.weights, in.of(TokenRecord::logprob),
                                entropy, in.columns, out.loss, out.gradient, out.entropy);
}

PreferenceLoss preference_loss(const PreferencePair& pair, double beta) {
    const double d =
        beta * ((pair.chosen - pair.chosen_reference) - (pair.rejected - pair.rejected_reference));
    // -log sigmoid(d), and beta sigmoid(-d), by exponentials that do not overflow.
    const double small = std::exp(-std::abs(d));
    return {.loss = std::log1p(small) + (d < 0 ? -d : 0),
            .advantage = beta * (d < 0 ? 1 : small) / (1 + small)};
}

std::vector<float> group_advantages(std::span<const float> rewards, int64_t group_size) {
    const auto size = static_cast<size_t>(group_size);
    if (group_size < 1 || rewards.size() % size != 0) {
        throw UsageError(std::to_string(rewards.size()) + " rewards are not whole groups of " +
                         std::to_string(group_size) + "; give one reward for every answer");
    }
    std::vector<float> advantages(rewards.size());
    for (size_t first = 0; first < rewards.size() && size > 1; first += size) {
        const std::span<const float> group = rewards.subspan(first, size);
        double mean = 0;
        for (const float reward : group) mean += double{reward} / static_cast<double>(size);
        double squares = 0;
        for (const float reward : group) squares += (reward - mean) * (reward - mean);
        const double deviation = std::sqrt(squares / static_cast<double>(size - 1));
        for (size_t i = 0; i < size; ++i) {
            advantages[first + i] = static_cast<float>((group[i] - mean) / (deviation + 1e-6));
        }
    }
    return advantages;
}

}  // namespace vocabpipe

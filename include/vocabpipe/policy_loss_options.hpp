// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace vocabpipe {

/// Schulman's estimators of the divergence from a reference, from one sample
/// (joschu.net/blog/kl-approx.html).
enum class KlEstimator : uint8_t {
    k1,  ///< l - l_ref: unbiased, of either sign
    k2,  ///< (l - l_ref)^2 / 2: biased, never negative
    k3,  ///< exp(l_ref - l) - 1 - (l_ref - l): unbiased, never negative
};
[[nodiscard]] std::string_view to_string(KlEstimator estimator);
/// UsageError for another name.
[[nodiscard]] KlEstimator kl_estimator_from(std::string_view name);

/// Options of a PolicyLoss.
struct PolicyLossOptions {
    float clip_low = 0.2F;             ///< how far below 1 a ratio still counts; PPO's value
    float clip_high = 0.2F;            ///< how far above; equal in PPO and GRPO, greater in DAPO
    float kl_coefficient = 0;          ///< default: no reference model is needed
    KlEstimator kl = KlEstimator::k3;  ///< GRPO's
    float entropy_coefficient = 0;     ///< bonus; default: none, as in GRPO

    /// Columns of the microbatch that it needs.
    [[nodiscard]] constexpr int64_t columns() const { return kl_coefficient != 0 ? 3 : 2; }
    /// Member by member.
    bool operator==(const PolicyLossOptions&) const = default;
};

}  // namespace vocabpipe

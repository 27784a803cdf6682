// SPDX-License-Identifier: Apache-2.0
// PolicyLoss of one token: for hosts and GPUs alike. In double, as exponentials of differences of
// log-probabilities lose digits in fp32.
#pragma once

#include <math.h>

#include "kernels/host_and_device.hpp"
#include "vocabpipe/policy_loss_options.hpp"

namespace vocabpipe::kernels {

/// The loss of a token and its slopes.
struct PolicyToken {
    double loss = 0;
    double slope = 0;  ///< by -log p of the label
    double entropy_slope = 0;
};

/// `reference` and `entropy` count only where their coefficients are not 0.
[[nodiscard]] VOCABPIPE_HOST_AND_DEVICE inline PolicyToken policy_token(
    const PolicyLossOptions& options, double logprob, double entropy, double advantage, double old,
    double reference) {
    const double ratio = ::exp(logprob - old);
    const double low = 1 - static_cast<double>(options.clip_low);
    const double high = 1 + static_cast<double>(options.clip_high);
    const double clipped = ratio < low ? low : ratio > high ? high : ratio;
    // Outside of the clips the lesser of both moves with the ratio, or with nothing.
    const bool moves = ratio * advantage <= clipped * advantage;
    PolicyToken token{.loss = moves ? -ratio * advantage : -clipped * advantage,
                      .slope = moves ? ratio * advantage : 0,
                      .entropy_slope = 0};
    if (const double weight = options.kl_coefficient; weight != 0) {
        const double apart = reference - logprob;
        switch (options.kl) {
            case KlEstimator::k1:
                token.loss -= weight * apart;
                token.slope -= weight;
                break;
            case KlEstimator::k2:
                token.loss += weight * apart * apart / 2;
                token.slope += weight * apart;
                break;
            case KlEstimator::k3:
                token.loss += weight * (::expm1(apart) - apart);
                token.slope += weight * ::expm1(apart);
                break;
        }
    }
    if (const double weight = options.entropy_coefficient; weight != 0) {
        token.loss -= weight * entropy;
        token.entropy_slope = -weight;
    }
    return token;
}

}  // namespace vocabpipe::kernels

// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include <algorithm>
#include <cmath>

namespace vocabpipe::kernels::reference {

void policy_loss(Context& /*ctx*/, const PolicyLossOptions& options,
                 std::span<const int32_t> labels, std::span<const float> g,
                 std::span<const float> logprob, std::span<const float> entropy,
                 std::span<const float> columns, std::span<float> loss, std::span<float> gradient,
                 std::span<float> entropy_gradient) {
    const size_t tokens = labels.size();
    for (size_t n = 0; n < tokens; ++n) {
        double value = 0;
        double by_logprob = 0;
        if (labels[n] >= 0) {
            const double advantage = columns[n];
            const double ratio = std::exp(double{logprob[n]} - columns[tokens + n]);
            const double clipped =
                std::clamp(ratio, 1.0 - options.clip_low, 1.0 + options.clip_high);
            value = -std::min(ratio * advantage, clipped * advantage);
            if (ratio * advantage <= clipped * advantage) by_logprob = -ratio * advantage;
            if (options.kl_coefficient != 0) {
                const double d = double{columns[2 * tokens + n]} - logprob[n];
                const double beta = options.kl_coefficient;
                switch (options.kl) {
                    case KlEstimator::k1:
                        value += beta * -d;
                        by_logprob += beta;
                        break;
                    case KlEstimator::k2:
                        value += beta * d * d / 2;
                        by_logprob += beta * -d;
                        break;
                    case KlEstimator::k3:
                        value += beta * (std::exp(d) - 1 - d);
                        by_logprob += beta * (1 - std::exp(d));
                        break;
                }
            }
            if (!entropy.empty()) value -= double{options.entropy_coefficient} * entropy[n];
        }
        loss[n] = static_cast<float>(value);
        gradient[n] = static_cast<float>(-by_logprob * g[n]);
        if (!entropy_gradient.empty()) {
            entropy_gradient[n] =
                labels[n] < 0 ? 0 : static_cast<float>(-double{options.entropy_coefficient} * g[n]);
        }
    }
}

}  // namespace vocabpipe::kernels::reference

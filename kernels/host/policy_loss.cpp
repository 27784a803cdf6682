// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include "kernels/host/parallel.hpp"
#include "kernels/policy_token.hpp"
#include "kernels/vocabulary_checks.hpp"

namespace vocabpipe::kernels::host {

void policy_loss(Context& ctx, const PolicyLossOptions& options, std::span<const int32_t> labels,
                 std::span<const float> g, std::span<const float> logprob,
                 std::span<const float> entropy, std::span<const float> columns,
                 std::span<float> loss, std::span<float> gradient,
                 std::span<float> entropy_gradient) {
    require_policy_loss(options, labels, g, logprob, entropy, columns, loss, gradient,
                        entropy_gradient);
    const size_t tokens = labels.size();
    const bool refers = options.kl_coefficient != 0;
    // About 50 ns per token.
    parallel_ranges(
        ctx, std::ssize(labels), std::ssize(labels) * 64, [&](int64_t from, int64_t to) {
            for (auto n = static_cast<size_t>(from); n < static_cast<size_t>(to); ++n) {
                PolicyToken token;
                if (labels[n] >= 0) {
                    token = policy_token(options, logprob[n], entropy.empty() ? 0 : entropy[n],
                                         columns[n], columns[tokens + n],
                                         refers ? columns[2 * tokens + n] : 0);
                }
                loss[n] = static_cast<float>(token.loss);
                gradient[n] = static_cast<float>(g[n] * token.slope);
                if (!entropy_gradient.empty()) {
                    entropy_gradient[n] =
                        labels[n] < 0 ? 0 : static_cast<float>(g[n] * token.entropy_slope);
                }
            }
        });
}

}  // namespace vocabpipe::kernels::host

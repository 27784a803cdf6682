// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/operators.hpp"
#include "kernels/host_and_device.hpp"
#include "kernels/policy_token.hpp"
#include "kernels/vocabulary_checks.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 256;

struct PolicyTokens {
    PolicyLossOptions options;
    int64_t tokens;
    const int32_t* labels;
    const float* g;
    const float* logprob;
    const float* entropy;  ///< or null
    const float* columns;
    float* loss;
    float* gradient;
    float* entropy_gradient;  ///< or null
};

/// A thread per token.
__global__ void __launch_bounds__(kThreads) policy_kernel(PolicyTokens of) {
    const int64_t n = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (n >= of.tokens) return;
    const bool counts = of.labels[n] >= 0;
    PolicyToken token;
    if (counts) {
        token =
            policy_token(of.options, of.logprob[n], of.entropy != nullptr ? of.entropy[n] : 0.0F,
                         of.columns[n], of.columns[of.tokens + n],
                         of.options.kl_coefficient != 0 ? of.columns[2 * of.tokens + n] : 0.0F);
    }
    const double g = counts ? static_cast<double>(of.g[n]) : 0.0;
    of.loss[n] = static_cast<float>(token.loss);
    of.gradient[n] = static_cast<float>(g * token.slope);
    if (of.entropy_gradient != nullptr) {
        of.entropy_gradient[n] = static_cast<float>(g * token.entropy_slope);
    }
}

}  // namespace

void policy_loss(Context& ctx, const PolicyLossOptions& options, std::span<const int32_t> labels,
                 std::span<const float> g, std::span<const float> logprob,
                 std::span<const float> entropy, std::span<const float> columns,
                 std::span<float> loss, std::span<float> gradient,
                 std::span<float> entropy_gradient) {
    require_policy_loss(options, labels, g, logprob, entropy, columns, loss, gradient,
                        entropy_gradient);
    const auto tokens = static_cast<int64_t>(labels.size());
    if (tokens == 0) return;
    launch(ctx, policy_kernel, blocks_for(tokens, kThreads), kThreads,
           PolicyTokens{.options = options,
                        .tokens = tokens,
                        .labels = labels.data(),
                        .g = g.data(),
                        .logprob = logprob.data(),
                        .entropy = data_of(entropy),
                        .columns = columns.data(),
                        .loss = loss.data(),
                        .gradient = gradient.data(),
                        .entropy_gradient = data_of(entropy_gradient)});
}

}  // namespace vocabpipe::kernels::cuda

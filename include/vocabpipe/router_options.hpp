// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace vocabpipe::kernels {

/// The function that turns a token's logits into scores of the experts.
enum class RouterScore : uint8_t {
    softmax,  ///< exp(z_e) / sum over all experts of exp(z)
    sigmoid,  ///< 1 / (1 + exp(-z_e)) (DeepSeek-V3)
};

/// Options of Operators::router_forward() and router_backward(): how a mixture of experts chooses
/// the experts of a token and weights their outputs.
struct RouterOptions {
    int64_t top_k = 1;                         ///< k, experts of a token
    RouterScore score = RouterScore::softmax;  ///< of an expert's logit
    bool normalize = false;                    ///< a token's weights are divided by their sum
    float scaling = 1;                         ///< then all weights are multiplied by this
    /// Number of groups of neighboring experts. Divides the number of experts.
    int64_t groups = 1;
    /// A token chooses from this many groups: those with the greatest sums of their two best
    /// scores. Together they must hold at least k experts. top_groups = groups: from all.
    int64_t top_groups = 1;
};

/// Coefficients of the router's own losses in the gradient of its logits. G is the sum of the loss
/// weights of the N tokens of a microbatch.
struct RouterLossScales {
    float balance = 0;  ///< coefficient G E / (k N^2) of sum_e load_e score_sum_e
    float z = 0;        ///< coefficient G / N of sum_n log Z_n^2
};

/// Layout of the doubles that Operators::sum_routing() adds up for a router: these, then its
/// experts' loads.
inline constexpr int64_t kRoutedMicrobatches = 0;  ///< microbatches counted
inline constexpr int64_t kRouterBalance = 1;       ///< load balancing losses, without coefficient
inline constexpr int64_t kRouterZ = 2;             ///< z losses, without coefficient
inline constexpr int64_t kExpertLoads = 3;         ///< first of E loads, in tokens

/// Most parts of Operators::combine_parts().
inline constexpr size_t kMostParts = 256;

}  // namespace vocabpipe::kernels

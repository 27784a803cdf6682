// SPDX-License-Identifier: Apache-2.0
// Divergence of one token from a teacher's list: for hosts and GPUs alike. In double, as sums of
// many small addends lose digits in fp32.
#pragma once

#include <math.h>

#include <cstdint>

#include "kernels/host_and_device.hpp"
#include "vocabpipe/distillation_options.hpp"
#include "vocabpipe/vocabulary_loss.hpp"

namespace vocabpipe::kernels {

/// What the loss of token n reads, and where its slopes go.
struct DistilledToken {
    const float* logits = nullptr;   ///< listed logits of the first shard
    int64_t shards = 1;              ///< of the vocabulary
    int64_t shard_stride = 0;        ///< floats between a token's rows in two shards
    const float* teacher = nullptr;  ///< log p of its first entry
    int64_t teacher_stride = 0;      ///< floats between its entries
    double logprob = 0;              ///< of the label
    double log_z = 0;
    double weight = 0;        ///< g
    float* slopes = nullptr;  ///< (1 + k): by x w of the label, then of the entries
};

/// The loss, and the weight of the label's cross-entropy whose gradient T forms.
struct DistilledLoss {
    double loss = 0;
    double gradient = 0;
};

/// d z / d (x w), with the temperature.
[[nodiscard]] VOCABPIPE_HOST_AND_DEVICE inline double logit_slope(const LossOptions& layer,
                                                                  double z) {
    const double temperature = layer.temperature;
    const double tanh =
        layer.logit_softcap > 0 ? z * temperature / static_cast<double>(layer.logit_softcap) : 0.0;
    return (1 - tanh * tanh) / temperature;
}

/// With t the teacher's and p the token's probabilities, a the share of the divergence and T the
/// sum of t over the list:
///
///     loss         = (1 - a) (-log p_y) + a sum t_i (log t_i - log p_i)
///     d loss / d z = ((1 - a) + a T) (p - [y]) + a T [y] - a sum t_i [i]
///
/// The first addend is the gradient of a weighted cross-entropy; the others, which no other token
/// of the vocabulary has, are the slopes.
[[nodiscard]] VOCABPIPE_HOST_AND_DEVICE inline DistilledLoss distilled_loss(
    const DistillationOptions& options, const LossOptions& layer, const DistilledToken& token) {
    const double share = options.kl_share;
    double divergence = 0;
    double mass = 0;
    for (int64_t i = 0; i < options.top_k; ++i) {
        const double log_t = token.teacher[i * token.teacher_stride];
        const double t = ::exp(log_t);
        double slope = 0;
        if (t > 0) {  // else: no entry
            double z = 0;
            for (int64_t k = 0; k < token.shards; ++k)
                z += token.logits[k * token.shard_stride + i];
            divergence += t * (log_t - (z - token.log_z));
            mass += t;
            // Where the token is not allowed, no weight moves its logit.
            if (z > -HUGE_VAL) slope = -token.weight * share * t * logit_slope(layer, z);
        }
        token.slopes[1 + i] = static_cast<float>(slope);
    }
    const double label = token.logprob + token.log_z;
    token.slopes[0] =
        label > -HUGE_VAL
            ? static_cast<float>(token.weight * share * mass * logit_slope(layer, label))
            : 0.0F;
    const double rest = 1 - share;
    return {.loss = (rest > 0 ? -rest * token.logprob : 0) + (share > 0 ? share * divergence : 0),
            .gradient = token.weight * (rest + share * mass)};
}

}  // namespace vocabpipe::kernels

// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/elements.hpp"
#include "kernels/reference/operators.hpp"

namespace vocabpipe::kernels::reference {

namespace {

/// Adds slopes times rows of `from` to `to`; `by_id`: rows of `from` are those of the shard, and
/// rows of `to` are tokens, else the other way round.
void add_listed(ConstTensor slopes, ConstTensor from, std::span<const int32_t> labels,
                ConstTensor ids, const VocabularyShard& shard, Tensor to, bool by_id) {
    for (int64_t n = 0; n < slopes.rows; ++n) {
        for (int64_t i = 0; i < slopes.cols; ++i) {
            const auto id =
                i == 0 ? labels[static_cast<size_t>(n)] : static_cast<int32_t>(get(ids, i - 1, n));
            if (!shard.owns(id)) continue;
            const int64_t row = id - shard.first_row;
            for (int64_t j = 0; j < to.cols; ++j) {
                const int64_t at = by_id ? n : row;
                set(to, at, j, get(to, at, j) + get(slopes, n, i) * get(from, by_id ? row : n, j));
            }
        }
    }
}

}  // namespace

void listed_logits(Context& /*ctx*/, ConstTensor x, ConstTensor w, ConstTensor ids,
                   const VocabularyShard& shard, const LossOptions& options, Tensor logits) {
    for (int64_t n = 0; n < x.rows; ++n) {
        for (int64_t i = 0; i < ids.rows; ++i) {
            const auto id = static_cast<int32_t>(get(ids, i, n));
            double z = 0;
            if (shard.owns(id)) {
                const int64_t row = id - shard.first_row;
                for (int64_t j = 0; j < x.cols; ++j) z += get(x, n, j) * get(w, row, j);
                if (const double cap = options.logit_softcap; cap > 0) z = cap * std::tanh(z / cap);
                z /= options.temperature;
                const uint32_t* const allowed = options.allowed;
                if (allowed != nullptr && (allowed[row / 32] >> (row % 32) & 1U) == 0) {
                    z = -std::numeric_limits<double>::infinity();
                }
            }
            set(logits, n, i, z);
        }
    }
}

void distillation_loss(Context& /*ctx*/, const DistillationOptions& options,
                       const LossOptions& layer, ConstTensor by_shard,
                       std::span<const int32_t> labels, std::span<const float> g,
                       std::span<const float> logprob, std::span<const float> log_z,
                       ConstTensor teacher, std::span<float> loss, std::span<float> gradient,
                       Tensor slopes) {
    const auto tokens = static_cast<int64_t>(labels.size());
    const double cap = layer.logit_softcap;
    const double temperature = layer.temperature;
    for (int64_t n = 0; n < tokens; ++n) {
        const auto at = static_cast<size_t>(n);
        for (int64_t i = 0; i < slopes.cols; ++i) set(slopes, n, i, 0);
        loss[at] = gradient[at] = 0;
        if (labels[at] < 0) continue;
        const auto add_slope = [&](int64_t entry, double by_logit, double z) {
            if (std::isinf(z)) return;
            const double bent = cap > 0 ? std::pow(z * temperature / cap, 2) : 0;
            set(slopes, n, entry, by_logit * g[at] * (1 - bent) / temperature);
        };
        double value = -(1 - double{options.kl_share}) * logprob[at];
        if (options.kl_share == 1) value = 0;  // of a label that is not allowed, too
        double mass = 0;
        for (int64_t i = 0; i < options.top_k; ++i) {
            const double t = std::exp(get(teacher, i, n));
            if (t == 0 || options.kl_share == 0) continue;
            double z = 0;
            for (int64_t row = n; row < by_shard.rows; row += tokens) z += get(by_shard, row, i);
            value += options.kl_share * t * (std::log(t) - z + log_z[at]);
            mass += options.kl_share * t;
            add_slope(1 + i, -options.kl_share * t, z);
        }
        add_slope(0, mass, double{logprob[at]} + log_z[at]);
        loss[at] = static_cast<float>(value);
        gradient[at] = static_cast<float>(g[at] * (1 - double{options.kl_share} + mass));
    }
}

void listed_input_gradient(Context& /*ctx*/, ConstTensor slopes, ConstTensor w,
                           std::span<const int32_t> labels, ConstTensor ids,
                           const VocabularyShard& shard, Tensor u) {
    add_listed(slopes, w, labels, ids, shard, u, true);
}

void listed_weight_gradient(Context& /*ctx*/, ConstTensor slopes, ConstTensor x,
                            std::span<const int32_t> labels, ConstTensor ids,
                            const VocabularyShard& shard, Tensor dw) {
    add_listed(slopes, x, labels, ids, shard, dw, false);
}

}  // namespace vocabpipe::kernels::reference

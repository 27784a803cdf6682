// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/reference/elements.hpp"
#include "kernels/reference/operators.hpp"

namespace vocabpipe::kernels::reference {

namespace {

constexpr double kSmallestSum = 1e-20;

using Values = std::vector<double>;

struct TokenScores {
    Values logits, scores, softmax;
    double log_z = 0;
};

TokenScores scores_of(ConstTensor logits, int64_t n, RouterScore kind) {
    TokenScores token;
    for (int64_t e = 0; e < logits.cols; ++e) token.logits.push_back(get(logits, n, e));
    const double max = *std::max_element(token.logits.begin(), token.logits.end());
    double sum = 0;
    for (const double z : token.logits) sum += std::exp(z - max);
    token.log_z = max + std::log(sum);
    for (const double z : token.logits) {
        token.softmax.push_back(std::exp(z - token.log_z));
        token.scores.push_back(kind == RouterScore::softmax ? token.softmax.back()
                                                            : 1 / (1 + std::exp(-z)));
    }
    return token;
}

/// Indices of [0, values), in descending order of values, and equal values in ascending order.
std::vector<size_t> descending(const Values& values) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return values[a] > values[b]; });
    return order;
}

std::vector<size_t> choose(const Values& keys, const RouterOptions& options) {
    const auto groups = static_cast<size_t>(options.groups);
    const size_t size = keys.size() / groups;
    Values best_sums;
    for (size_t group = 0; group < groups; ++group) {
        Values own(keys.begin() + static_cast<std::ptrdiff_t>(group * size),
                   keys.begin() + static_cast<std::ptrdiff_t>((group + 1) * size));
        std::sort(own.rbegin(), own.rend());
        best_sums.push_back(own[0] + (size > 1 ? own[1] : 0));
    }
    std::vector<bool> open(groups);
    const auto best = descending(best_sums);
    for (size_t i = 0; i < static_cast<size_t>(options.top_groups); ++i) open[best[i]] = true;
    std::vector<size_t> chosen;
    for (const size_t e : descending(keys)) {
        if (open[e / size] && chosen.size() < static_cast<size_t>(options.top_k)) {
            chosen.push_back(e);
        }
    }
    return chosen;
}

}  // namespace

void router_forward(Context& ctx, ConstTensor logits, ConstTensor bias,
                    const RouterOptions& options, std::span<int32_t> choice, Tensor weights,
                    Tensor load, Tensor score_sums, Tensor log_z) {
    const auto experts = static_cast<size_t>(logits.cols);
    Values loads(experts), sums(experts);
    for (int64_t n = 0; n < logits.rows; ++n) {
        const TokenScores token = scores_of(logits, n, options.score);
        set(log_z, n, 0, token.log_z);
        const double all = std::accumulate(token.scores.begin(), token.scores.end(), 0.0);
        Values keys = bias || options.top_groups < options.groups ? token.scores : token.logits;
        for (size_t e = 0; e < experts; ++e) {
            if (bias) keys[e] += get(bias, 0, static_cast<int64_t>(e));
            sums[e] += options.score == RouterScore::softmax
                           ? token.scores[e]
                           : token.scores[e] / (all + kSmallestSum);
        }
        const auto chosen = choose(keys, options);
        double sum = 0;
        for (const size_t e : chosen) sum += token.scores[e];
        for (int64_t j = 0; j < options.top_k; ++j) {
            const size_t e = chosen[static_cast<size_t>(j)];
            choice[static_cast<size_t>(n * options.top_k + j)] = static_cast<int32_t>(e);
            loads[e] += 1;
            set(weights, n, j,
                token.scores[e] / (options.normalize ? sum + kSmallestSum : 1) * options.scaling);
        }
    }
    for (size_t e = 0; e < experts; ++e) {
        set(load, 0, static_cast<int64_t>(e), loads[e]);
        set(score_sums, 0, static_cast<int64_t>(e), sums[e]);
    }
    ctx.poll();
}

void router_backward(Context& ctx, ConstTensor logits, ConstTensor /*log_z*/,
                     std::span<const int32_t> choice, ConstTensor dweights, ConstTensor load,
                     const RouterOptions& options, const RouterLossScales& scales, Tensor dlogits) {
    const auto experts = static_cast<size_t>(logits.cols);
    const bool softmax = options.score == RouterScore::softmax;
    for (int64_t n = 0; n < logits.rows; ++n) {
        const TokenScores token = scores_of(logits, n, options.score);
        const Values& s = token.scores;
        const double all = softmax ? 1 : std::accumulate(s.begin(), s.end(), 0.0) + kSmallestSum;
        double balance = 0;  // sum over experts of load * share
        for (size_t e = 0; e < experts; ++e) {
            balance += get(load, 0, static_cast<int64_t>(e)) * s[e] / all;
        }
        Values ds(experts);
        for (size_t e = 0; e < experts; ++e) {
            const double own = get(load, 0, static_cast<int64_t>(e));
            ds[e] = scales.balance * (softmax ? own : (own - balance) / all);
        }

        double sum = kSmallestSum, inner = 0;
        for (int64_t j = 0; j < options.top_k; ++j) {
            const auto e = static_cast<size_t>(choice[static_cast<size_t>(n * options.top_k + j)]);
            sum += s[e];
            inner += s[e] * get(dweights, n, j);
        }
        for (int64_t j = 0; j < options.top_k; ++j) {
            const auto e = static_cast<size_t>(choice[static_cast<size_t>(n * options.top_k + j)]);
            const double dw = get(dweights, n, j);
            ds[e] += options.scaling * (options.normalize ? (dw - inner / sum) / sum : dw);
        }

        double mean = 0;
        for (size_t e = 0; e < experts; ++e) mean += s[e] * ds[e];
        for (size_t e = 0; e < experts; ++e) {
            const double of_scores = softmax ? s[e] * (ds[e] - mean) : s[e] * (1 - s[e]) * ds[e];
            set(dlogits, n, static_cast<int64_t>(e),
                of_scores + 2 * scales.z * token.log_z * token.softmax[e]);
        }
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference

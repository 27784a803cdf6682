// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/expert_checks.hpp"
#include "kernels/host/math.hpp"
#include "kernels/host/operators.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// Keeps a sum of scores above 0.
constexpr float kSmallestSum = 1e-20F;
/// Sums over tokens add blocks of this many, in order.
constexpr int64_t kTokensPerBlock = 64;

/// A sum in an order that depends on `count` only, unlike a compiler's own.
double sum_of(const float* values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]);
    return sum;
}

float log_of_sum(const float* logits, int64_t experts, float* scratch) {
    float max = logits[0];
    for (int64_t e = 1; e < experts; ++e) max = logits[e] > max ? logits[e] : max;
#pragma omp simd
    for (int64_t e = 0; e < experts; ++e) scratch[e] = fast_exp(logits[e] - max);
    return max + static_cast<float>(std::log(sum_of(scratch, experts)));
}

void compute_scores(RouterScore kind, const float* logits, float log_z, int64_t experts,
                    float* scores) {
    if (kind == RouterScore::softmax) {
#pragma omp simd
        for (int64_t e = 0; e < experts; ++e) scores[e] = fast_exp(logits[e] - log_z);
    } else {
#pragma omp simd
        for (int64_t e = 0; e < experts; ++e) scores[e] = fast_sigmoid(logits[e]);
    }
}

/// The `limit` greatest of the keys that are offered, in descending order; equal keys in the order
/// of arrival. NaN is not greater than any key, so it only takes a place while some are free.
class Best {
public:
    Best(int32_t* indices, float* keys, int64_t limit)
        : indices_(indices), keys_(keys), limit_(limit) {}
    void offer(float key, int32_t index) {
        int64_t at = count_;
        if (count_ == limit_) {
            if (!(key > keys_[limit_ - 1])) return;
            at = limit_ - 1;
        } else {
            ++count_;
        }
        for (; at > 0 && key > keys_[at - 1]; --at) {
            keys_[at] = keys_[at - 1];
            indices_[at] = indices_[at - 1];
        }
        keys_[at] = key;
        indices_[at] = index;
    }

private:
    int32_t* indices_;
    float* keys_;
    int64_t limit_;
    int64_t count_ = 0;
};

/// Chooses the experts of one token after another.
class Choice {
public:
    Choice(const RouterOptions& options, int64_t experts)
        : options_(options),
          experts_(experts),
          best_keys_(static_cast<size_t>(std::max(options.top_k, options.top_groups))),
          best_groups_(static_cast<size_t>(options.top_groups)) {}

    void choose(const float* keys, int32_t* chosen) {
        if (options_.top_groups == options_.groups) {
            Best best(chosen, best_keys_.data(), options_.top_k);
            for (int64_t e = 0; e < experts_; ++e) best.offer(keys[e], static_cast<int32_t>(e));
            return;
        }
        choose_groups(keys);
        Best best(chosen, best_keys_.data(), options_.top_k);
        for (const int32_t group : best_groups_) {
            for (int64_t e = group * size(); e < (group + 1) * size(); ++e) {
                best.offer(keys[e], static_cast<int32_t>(e));
            }
        }
    }

private:
    [[nodiscard]] int64_t size() const { return experts_ / options_.groups; }

    /// Leaves the best groups in ascending order, so that the lower index wins between equal keys.
    void choose_groups(const float* keys) {
        Best best(best_groups_.data(), best_keys_.data(), options_.top_groups);
        for (int64_t group = 0; group < options_.groups; ++group) {
            const float* own = keys + group * size();
            float first = own[0], second = -INFINITY;
            for (int64_t e = 1; e < size(); ++e) {
                second = own[e] > first ? first : own[e] > second ? own[e] : second;
                first = own[e] > first ? own[e] : first;
            }
            best.offer(size() > 1 ? first + second : first, static_cast<int32_t>(group));
        }
        std::sort(best_groups_.begin(), best_groups_.end());
    }

    const RouterOptions& options_;
    int64_t experts_;
    std::vector<float> best_keys_;
    std::vector<int32_t> best_groups_;
};

struct BlockSums {
    std::vector<double> score_sums;
    std::vector<int64_t> load;
};

struct Router {
    ConstTensor logits, bias;
    const RouterOptions& options;
    std::span<int32_t> choice;
    Tensor weights, log_z;

    [[nodiscard]] BlockSums route(int64_t begin, int64_t end) const {
        const int64_t experts = logits.cols, k = options.top_k;
        BlockSums sums{std::vector<double>(static_cast<size_t>(experts)),
                       std::vector<int64_t>(static_cast<size_t>(experts))};
        std::vector<float> scores(static_cast<size_t>(experts)), keys(scores.size());
        Choice chooser(options, experts);
        for (int64_t n = begin; n < end; ++n) {
            const float* z = logits.as<float>() + n * logits.stride;
            const float own_log_z = log_of_sum(z, experts, scores.data());
            log_z.as<float>()[n * log_z.stride] = own_log_z;
            compute_scores(options.score, z, own_log_z, experts, scores.data());
            add_scores(scores, sums.score_sums);
            int32_t* chosen = choice.data() + n * k;
            chooser.choose(keys_of(z, scores, keys), chosen);
            float sum = 0;
            for (int64_t j = 0; j < k; ++j) sum += scores[static_cast<size_t>(chosen[j])];
            for (int64_t j = 0; j < k; ++j) {
                const auto e = static_cast<size_t>(chosen[j]);
                ++sums.load[e];
                const float weight =
                    options.normalize ? scores[e] / (sum + kSmallestSum) : scores[e];
                weights.as<float>()[n * weights.stride + j] = weight * options.scaling;
            }
        }
        return sums;
    }

private:
    void add_scores(const std::vector<float>& scores, std::vector<double>& sums) const {
        double total = 1;
        if (options.score == RouterScore::sigmoid) {
            total = sum_of(scores.data(), logits.cols) + static_cast<double>(kSmallestSum);
        }
        for (size_t e = 0; e < scores.size(); ++e) {
            sums[e] += static_cast<double>(scores[e]) / total;
        }
    }

    /// The keys of the choice: score + bias; without a bias scores if groups are compared,
    /// otherwise logits.
    const float* keys_of(const float* z, const std::vector<float>& scores,
                         std::vector<float>& keys) const {
        if (!bias) return options.top_groups < options.groups ? scores.data() : z;
        const float* added = bias.as<float>();
#pragma omp simd
        for (size_t e = 0; e < keys.size(); ++e) keys[e] = scores[e] + added[e];
        return keys.data();
    }
};

}  // namespace

void router_forward(Context& ctx, ConstTensor logits, ConstTensor bias,
                    const RouterOptions& options, std::span<int32_t> choice, Tensor weights,
                    Tensor load, Tensor score_sums, Tensor log_z) {
    require_router(logits, options, choice, weights, load, log_z);
    require_router_forward(logits, bias, score_sums);
    const Router router{logits, bias, options, choice, weights, log_z};
    const int64_t blocks = (logits.rows + kTokensPerBlock - 1) / kTokensPerBlock;
    std::vector<BlockSums> sums(static_cast<size_t>(blocks));
    parallel_ranges(ctx, blocks, logits.size(), [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
            const int64_t first = block * kTokensPerBlock;
            sums[static_cast<size_t>(block)] =
                router.route(first, std::min(first + kTokensPerBlock, logits.rows));
        }
    });
    for (int64_t e = 0; e < logits.cols; ++e) {
        double score_sum = 0;
        int64_t tokens = 0;
        for (const BlockSums& block : sums) {
            score_sum += block.score_sums[static_cast<size_t>(e)];
            tokens += block.load[static_cast<size_t>(e)];
        }
        score_sums.as<float>()[e] = static_cast<float>(score_sum);
        load.as<float>()[e] = static_cast<float>(tokens);
    }
}

void router_backward(Context& ctx, ConstTensor logits, ConstTensor log_z,
                     std::span<const int32_t> choice, ConstTensor dweights, ConstTensor load,
                     const RouterOptions& options, const RouterLossScales& scales, Tensor dlogits) {
    require_router(logits, options, choice, dweights, load, log_z);
    require(same_shape(dlogits, logits) && dlogits.dtype == DType::fp32, "dlogits as logits");
    const int64_t experts = logits.cols, k = options.top_k;
    const bool softmax = options.score == RouterScore::softmax;
    const float* loads = load.as<float>();
    parallel_ranges(ctx, logits.rows, logits.size(), [&](int64_t begin, int64_t end) {
        std::vector<float> s(static_cast<size_t>(experts)), ds(s.size()), product(s.size());
        const auto sum_of_products = [&](const float* with) {
#pragma omp simd
            for (size_t e = 0; e < s.size(); ++e) product[e] = s[e] * with[e];
            return static_cast<float>(sum_of(product.data(), experts));
        };
        for (int64_t n = begin; n < end; ++n) {
            const float* z = logits.as<float>() + n * logits.stride;
            const float* dw = dweights.as<float>() + n * dweights.stride;
            const float own_log_z = log_z.as<float>()[n * log_z.stride];
            const int32_t* chosen = choice.data() + n * k;
            compute_scores(options.score, z, own_log_z, experts, s.data());

            // d loss / d score: first the part of load balancing, then that of the weights.
            const float total =
                softmax ? 1 : static_cast<float>(sum_of(s.data(), experts)) + kSmallestSum;
            const float balance = softmax ? 0 : sum_of_products(loads) / total;
            const float factor = scales.balance / total;
#pragma omp simd
            for (size_t e = 0; e < s.size(); ++e) ds[e] = factor * (loads[e] - balance);
            float sum = kSmallestSum, inner = 0;
            for (int64_t j = 0; j < k; ++j) {
                const float score = s[static_cast<size_t>(chosen[j])];
                sum += score;
                inner += score * dw[j];
            }
            for (int64_t j = 0; j < k; ++j) {
                const float slope = options.normalize ? (dw[j] - inner / sum) / sum : dw[j];
                ds[static_cast<size_t>(chosen[j])] += options.scaling * slope;
            }

            const float mean = softmax ? sum_of_products(ds.data()) : 0;
            const float of_z = 2 * scales.z * own_log_z;
            float* dz = dlogits.as<float>() + n * dlogits.stride;
            if (softmax) {
#pragma omp simd
                for (size_t e = 0; e < s.size(); ++e) dz[e] = s[e] * (ds[e] - mean + of_z);
            } else {
#pragma omp simd
                for (size_t e = 0; e < s.size(); ++e) {
                    dz[e] = s[e] * (1 - s[e]) * ds[e] + of_z * fast_exp(z[e] - own_log_z);
                }
            }
        }
    });
}

}  // namespace vocabpipe::kernels::host

// SPDX-License-Identifier: Apache-2.0
#include "tests/model/fp64_moe.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

namespace vocabpipe::testing::fp64 {

Moe::Moe(const MoeConfig& config, MlpActivation activation, MoeNames names, const Tensors& weights,
         double loss_weight)
    : config_(config),
      activation_(activation),
      names_(std::move(names)),
      weights_(weights),
      loss_weight_(loss_weight) {}

/// The part of a tensor that belongs to one expert.
Vector Moe::expert(const std::string& name, size_t index) const {
    const Vector& all = weights_.at(name + ".weight");
    const size_t size = all.size() / static_cast<size_t>(config_.experts);
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(index * size);
    return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}

double Moe::chosen_sum(size_t token) const {
    double sum = 0;
    for (size_t e = 0; e < scores_[token].size(); ++e) sum += chosen_[token][e] * scores_[token][e];
    return sum;
}

namespace {

/// Indices of the `count` greatest values, of equal ones the smaller index; lowers `gap` to what
/// the best of the others misses.
std::vector<size_t> greatest(const Vector& values, size_t count, double& gap) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return values[a] > values[b]; });
    if (count < order.size()) {
        gap = std::min(gap, values[order[count - 1]] - values[order[count]]);
    }
    order.resize(count);
    return order;
}

}  // namespace

/// By score and bias inside the groups whose two best add up to most.
void Moe::choose(size_t token) {
    const auto groups = static_cast<size_t>(config_.groups);
    const auto top_groups = static_cast<size_t>(config_.top_groups);
    const bool by_logits = names_.correction_bias.empty() && top_groups == groups;
    Vector keys = by_logits ? logits_[token] : scores_[token];
    if (!names_.correction_bias.empty()) {
        const Vector& bias = weights_.at(names_.correction_bias);
        for (size_t e = 0; e < keys.size(); ++e) keys[e] += bias[e];
    }
    const size_t size = keys.size() / groups;
    Vector pairs;
    for (size_t group = 0; group < groups; ++group) {
        const auto first = keys.begin() + static_cast<std::ptrdiff_t>(group * size);
        Vector own(first, first + static_cast<std::ptrdiff_t>(size));
        std::ranges::sort(own, std::greater());
        pairs.push_back(size > 1 ? own[0] + own[1] : own[0]);
    }
    const std::vector<size_t> open = greatest(pairs, top_groups, least_gap_);
    for (size_t e = 0; e < keys.size(); ++e) {
        if (std::ranges::find(open, e / size) == open.end()) keys[e] = -INFINITY;
    }
    for (const size_t e : greatest(keys, static_cast<size_t>(config_.top_k), least_gap_)) {
        chosen_[token][e] = 1;
    }
}

Rows Moe::forward(const Rows& x) {
    const auto experts = static_cast<size_t>(config_.experts);
    x_ = x;
    logits_ = linear(x, weights_.at(names_.router + ".weight"), {});
    scores_ = chosen_ = weight_ = Rows(x.size(), Vector(experts, 0.0));
    log_z_.clear();
    for (size_t n = 0; n < x.size(); ++n) {
        double z = 0;
        for (const double logit : logits_[n]) z += std::exp(logit);
        log_z_.push_back(std::log(z));
        for (size_t e = 0; e < experts; ++e) {
            scores_[n][e] = config_.score == kernels::RouterScore::sigmoid
                                ? 1 / (1 + std::exp(-logits_[n][e]))
                                : std::exp(logits_[n][e]) / z;
        }
        choose(n);
        const double divisor = config_.normalize ? chosen_sum(n) : 1;
        for (size_t e = 0; e < experts; ++e) {
            weight_[n][e] = config_.scaling * chosen_[n][e] * scores_[n][e] / divisor;
        }
    }
    Rows y(x.size(), Vector(x[0].size(), 0.0));
    gate_up_.clear();
    act_.clear();
    out_.clear();
    for (size_t e = 0; e < experts; ++e) {
        gate_up_.push_back(linear(x, expert(names_.gate_up, e), {}));
        act_.push_back(activation_.forward(gate_up_[e]));
        out_.push_back(linear(act_[e], expert(names_.down, e), {}));
        for (size_t n = 0; n < x.size(); ++n) {
            for (size_t i = 0; i < y[n].size(); ++i) y[n][i] += weight_[n][e] * out_[e][n][i];
        }
    }
    return y;
}

Rows Moe::gradient(const Rows& dy, GradientSink& sink) const {
    const auto experts = static_cast<size_t>(config_.experts);
    const size_t tokens = x_.size();
    Rows dweight(tokens, Vector(experts, 0.0));
    Rows dx(tokens, Vector(x_[0].size(), 0.0));
    Vector dgate_up, ddown;
    for (size_t e = 0; e < experts; ++e) {
        Rows dout = dy;
        for (size_t n = 0; n < tokens; ++n) {
            dweight[n][e] = dot(dy[n].data(), out_[e][n].data(), dy[n].size());
            for (double& value : dout[n]) value *= weight_[n][e];
        }
        Tensors of_expert;
        GradientSink into(&of_expert);
        Rows d = linear_gradient(dout, act_[e], expert(names_.down, e), "down", false, into);
        d = activation_.gradient(d, gate_up_[e]);
        d = linear_gradient(d, x_, expert(names_.gate_up, e), "gate_up", false, into);
        dx = sum(dx, d);
        const Vector& down = of_expert.at("down.weight");
        const Vector& gate_up = of_expert.at("gate_up.weight");
        ddown.insert(ddown.end(), down.begin(), down.end());
        dgate_up.insert(dgate_up.end(), gate_up.begin(), gate_up.end());
    }
    sink.add(names_.down + ".weight", ddown);
    sink.add(names_.gate_up + ".weight", dgate_up);

    const auto n_tokens = static_cast<double>(tokens);
    const Vector load = this->load();
    const double balance = config_.aux_loss * loss_weight_ * static_cast<double>(experts) /
                           (static_cast<double>(config_.top_k) * n_tokens * n_tokens);
    Rows dlogits(tokens, Vector(experts, 0.0));
    for (size_t n = 0; n < tokens; ++n) {
        const Vector& s = scores_[n];
        const double chosen = config_.normalize ? chosen_sum(n) : 1;
        double common = 0;
        for (size_t e = 0; e < experts; ++e) common += dweight[n][e] * weight_[n][e];
        Vector ds(experts, 0.0);
        for (size_t e = 0; e < experts; ++e) {
            ds[e] = chosen_[n][e] / chosen *
                    (config_.scaling * dweight[n][e] - (config_.normalize ? common : 0));
        }
        // P is made of softmax scores, or of sigmoids divided by their sum.
        const double all = std::accumulate(s.begin(), s.end(), 0.0);
        double mean = 0;
        for (size_t e = 0; e < experts; ++e) mean += balance * load[e] * s[e] / all;
        for (size_t e = 0; e < experts; ++e) {
            const bool sigmoid = config_.score == kernels::RouterScore::sigmoid;
            ds[e] += (balance * load[e] - (sigmoid ? mean : 0)) / (sigmoid ? all : 1);
        }
        double inner = 0;
        for (size_t e = 0; e < experts; ++e) inner += s[e] * ds[e];
        for (size_t e = 0; e < experts; ++e) {
            dlogits[n][e] = config_.score == kernels::RouterScore::sigmoid
                                ? ds[e] * s[e] * (1 - s[e])
                                : s[e] * (ds[e] - inner);
            dlogits[n][e] += config_.z_loss * loss_weight_ / n_tokens * 2 * log_z_[n] *
                             std::exp(logits_[n][e] - log_z_[n]);
        }
    }
    return sum(dx, linear_gradient(dlogits, x_, weights_.at(names_.router + ".weight"),
                                   names_.router, false, sink));
}

Vector Moe::load() const {
    Vector load(static_cast<size_t>(config_.experts), 0.0);
    for (const Vector& row : chosen_) {
        for (size_t e = 0; e < load.size(); ++e) load[e] += row[e];
    }
    return load;
}

double Moe::router_loss() const {
    const auto experts = static_cast<size_t>(config_.experts);
    const auto tokens = static_cast<double>(x_.size());
    double balance = 0;
    for (size_t e = 0; e < experts; ++e) {
        double load = 0;
        double score = 0;
        for (size_t n = 0; n < x_.size(); ++n) {
            const double all = std::accumulate(scores_[n].begin(), scores_[n].end(), 0.0);
            load += chosen_[n][e];
            score += scores_[n][e] / all;
        }
        balance += load * score;
    }
    double z = 0;
    for (const double log_z : log_z_) z += log_z * log_z;
    return config_.aux_loss * loss_weight_ * static_cast<double>(experts) /
               (static_cast<double>(config_.top_k) * tokens * tokens) * balance +
           config_.z_loss * loss_weight_ / tokens * z;
}

}  // namespace vocabpipe::testing::fp64

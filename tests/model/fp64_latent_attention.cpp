// SPDX-License-Identifier: Apache-2.0
#include "tests/model/fp64_latent_attention.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe::testing::fp64 {

namespace {

Rows columns(const Rows& rows, size_t first, size_t count) {
    Rows some;
    for (const Vector& row : rows) {
        const auto begin = row.begin() + static_cast<std::ptrdiff_t>(first);
        some.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
    }
    return some;
}

void add_columns(Rows& rows, size_t first, const Rows& some) {
    for (size_t n = 0; n < rows.size(); ++n) {
        for (size_t i = 0; i < some[n].size(); ++i) rows[n][first + i] += some[n][i];
    }
}

Rows normed(const RmsNorm& norm, Rows rows) {
    for (Vector& row : rows) norm.forward(row.data());
    return rows;
}

Rows norm_gradient(const RmsNorm& norm, Rows d, const Rows& x, const std::string& name,
                   GradientSink& sink) {
    Vector dgamma(norm.gamma.size(), 0.0);
    for (size_t n = 0; n < d.size(); ++n) norm.gradient(d[n].data(), x[n].data(), dgamma);
    sink.add(name + ".weight", dgamma);
    return d;
}

}  // namespace

LatentAttention::LatentAttention(const LatentSizes& sizes, const Attention& of, Rotary rotary,
                                 double epsilon, LatentNames names, const Tensors& weights)
    : sizes_(sizes),
      of_(of),
      rotary_(std::move(rotary)),
      epsilon_(epsilon),
      names_(std::move(names)),
      weights_(weights) {
    of_.kv_heads = sizes.heads;
    of_.size = sizes.head_size();
    of_.rotated = sizes.rope_size;
    of_.value_size = sizes.value_size;
}

size_t LatentAttention::q_columns() const {
    return sizes_.q_rank > 0 ? sizes_.q_rank : sizes_.heads * sizes_.head_size();
}

RmsNorm LatentAttention::norm(const std::string& name) const {
    return {weights_.at(name + ".weight"), 0, epsilon_};
}

template <typename Rotate, typename Up>
void LatentAttention::each_of_keys_and_values(Rotate&& rotate, Up&& up) const {
    const size_t heads_size = sizes_.heads * sizes_.head_size();
    const size_t rope = sizes_.rope_size, key = sizes_.key_size;
    for (size_t head = 0; head < sizes_.heads; ++head) {
        const size_t of_key = heads_size + head * sizes_.head_size();
        for (size_t i = 0; i < rope; ++i) rotate(of_key + i, i);
        for (size_t i = 0; i < key; ++i) up(of_key + rope + i, head * key + i);
    }
    for (size_t i = 0; i < sizes_.heads * sizes_.value_size; ++i) {
        up(2 * heads_size + i, sizes_.heads * key + i);
    }
}

Rows LatentAttention::forward(const Rows& x) {
    const auto product = [&](const Rows& in, const std::string& name) {
        return linear(in, weights_.at(name + ".weight"), {});
    };
    x_ = x;
    down_ = product(x, names_.down);
    q_latent_ = columns(down_, 0, q_columns());
    if (sizes_.q_rank > 0) q_latent_ = normed(norm(names_.q_norm), q_latent_);
    kv_latent_ = normed(norm(names_.kv_norm), columns(down_, q_columns(), sizes_.kv_rank));
    const size_t rotary_key = q_columns() + sizes_.kv_rank;
    const Rows q = sizes_.q_rank > 0 ? product(q_latent_, names_.q_up) : q_latent_;
    const Rows kv = product(kv_latent_, names_.kv_up);
    const size_t heads_size = sizes_.heads * sizes_.head_size();
    qkv_ = Rows(x.size(), Vector(2 * heads_size + sizes_.heads * sizes_.value_size));
    for (size_t n = 0; n < x.size(); ++n) {
        std::ranges::copy(q[n], qkv_[n].begin());
        each_of_keys_and_values(
            [&](size_t to, size_t from) { qkv_[n][to] = down_[n][rotary_key + from]; },
            [&](size_t to, size_t from) { qkv_[n][to] = kv[n][from]; });
    }
    of_.rotate(qkv_, rotary_, 1);
    return of_.forward(qkv_);
}

Rows LatentAttention::gradient(const Rows& dheads, GradientSink& sink) const {
    const auto product = [&](const Rows& dy, const Rows& in, const std::string& name) {
        return linear_gradient(dy, in, weights_.at(name + ".weight"), name, false, sink);
    };
    Rows d = of_.gradient(dheads, qkv_);
    of_.rotate(d, rotary_, -1);
    Rows dkv(x_.size(), Vector(sizes_.heads * (sizes_.key_size + sizes_.value_size)));
    Rows ddown(x_.size(), Vector(down_[0].size()));
    const size_t rotary_key = q_columns() + sizes_.kv_rank;
    for (size_t n = 0; n < x_.size(); ++n) {
        each_of_keys_and_values(
            [&](size_t from, size_t to) { ddown[n][rotary_key + to] += d[n][from]; },
            [&](size_t from, size_t to) { dkv[n][to] = d[n][from]; });
    }
    add_columns(ddown, q_columns(),
                norm_gradient(norm(names_.kv_norm), product(dkv, kv_latent_, names_.kv_up),
                              columns(down_, q_columns(), sizes_.kv_rank), names_.kv_norm, sink));
    Rows dq = columns(d, 0, sizes_.heads * sizes_.head_size());
    if (sizes_.q_rank > 0) {
        dq = norm_gradient(norm(names_.q_norm), product(dq, q_latent_, names_.q_up),
                           columns(down_, 0, sizes_.q_rank), names_.q_norm, sink);
    }
    add_columns(ddown, 0, dq);
    return product(ddown, x_, names_.down);
}

}  // namespace vocabpipe::testing::fp64

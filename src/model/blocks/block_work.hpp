// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/parameter_source.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// A product of a block with one of its weights: `out` columns from `in` columns of every row.
struct BlockProduct {
    int64_t in = 0;
    int64_t out = 0;
    TensorCut cut = TensorCut::repeated;  ///< how ranks share the weight (out, in)
    int64_t experts = 1;                  ///< E, weights; each row takes one of them
    int64_t per_token = 1;                ///< k, rows of a token
    double rows = 1;  ///< of a part of a model whose values have other rows than tokens: per token

    /// Forward FLOPs per token.
    [[nodiscard]] double flops() const {
        return 2 * rows * static_cast<double>(per_token) * static_cast<double>(in) *
               static_cast<double>(out);
    }
};

/// Elements that operators other than products read and write, each operator by itself.
struct MovedElements {
    int64_t forward = 0;
    int64_t backward = 0;
    int64_t recompute = 0;  ///< by a selective R
    /// Also by a selective R: norms and positions of q and k. flop_costs() leaves them out.
    int64_t recompute_heads = 0;

    void add(const MovedElements& other) {
        for (int64_t MovedElements::*const in : kAll) this->*in += other.*in;
    }
    void scale(double factor) {
        for (int64_t MovedElements::*const in : kAll) {
            this->*in = std::llround(factor * static_cast<double>(this->*in));
        }
    }

private:
    static const std::array<int64_t MovedElements::*, 4> kAll;
};
inline constexpr std::array<int64_t MovedElements::*, 4> MovedElements::kAll{
    &MovedElements::forward, &MovedElements::backward, &MovedElements::recompute,
    &MovedElements::recompute_heads};

/// What the passes of a block do, per token and on all ranks that share it. Cost models add up the
/// work of blocks.
struct BlockWork {
    std::vector<BlockProduct> products = {};
    double heads_flops = 0;      ///< forward FLOPs of attention's heads
    double recompute_flops = 0;  ///< the part of flops() that a selective R does again
    int64_t heads = 0;           ///< attention heads: each has a score per pair of tokens
    int64_t query_columns = 0;   ///< elements of q of a token, of all heads
    int64_t kv_columns = 0;      ///< elements of k and v
    MovedElements moved = {};
    /// The part of `moved` that belongs to the residual stream: norms of its rows and additions.
    MovedElements moved_of_residual = {};

    void add(const BlockWork& other) {
        products.insert(products.end(), other.products.begin(), other.products.end());
        heads_flops += other.heads_flops;
        recompute_flops += other.recompute_flops;
        heads += other.heads;
        query_columns += other.query_columns;
        kv_columns += other.kv_columns;
        moved.add(other.moved);
        moved_of_residual.add(other.moved_of_residual);
    }
    /// Where rows of other values than tokens have done this: `rows` of them per token.
    void scale(double rows) {
        for (BlockProduct& product : products) product.rows *= rows;
        heads_flops *= rows;
        recompute_flops *= rows;
        for (int64_t BlockWork::*const of :
             {&BlockWork::heads, &BlockWork::query_columns, &BlockWork::kv_columns}) {
            this->*of = std::llround(rows * static_cast<double>(this->*of));
        }
        moved.scale(rows);
        moved_of_residual.scale(rows);
    }
    /// Forward FLOPs: matrix products only; scores count the keys a query sees.
    [[nodiscard]] double flops() const {
        double sum = 0;
        for (const BlockProduct& product : products) sum += product.flops();
        return sum + heads_flops;
    }
};

}  // namespace vocabpipe

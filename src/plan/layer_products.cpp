// SPDX-License-Identifier: Apache-2.0
#include "src/plan/layer_products.hpp"

#include "vocabpipe/moe_config.hpp"
#include "vocabpipe/overlap.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace vocabpipe {

namespace {

constexpr double kElement = 2;  // bytes of bf16
constexpr std::array kPieces{1, 2, 4, 8};

int64_t whole(double value) {
    return std::max<int64_t>(1, std::llround(value));
}

/// Ranks that compute the products of experts together.
class Team {
public:
    Team(int members, const Link& link, bool blocking)
        : members_(members), link_(link), blocking_(blocking) {}

    /// Nanoseconds of a product of `rows` rows, where for each a row of `row_bytes` travels before
    /// or after the product; in a combine by panels of columns instead of pieces of rows.
    /// `fixed_ns` is added.
    [[nodiscard]] double ns(OverlapOp op, double rows, double row_bytes, double rows_ns,
                            double fixed_ns) const {
        if (members_ == 1) return rows_ns + fixed_ns;
        if (blocking_) return exchange_ns(rows, row_bytes) + rows_ns + fixed_ns;
        const PieceChoice choice = choose_pieces(
            {.op = op, .rows = whole(rows), .members = members_, .compute_ns = whole(rows_ns)},
            link_, {.row_bytes = whole(row_bytes)}, kPieces);
        return static_cast<double>(choice.times.overlapped_ns) + fixed_ns;
    }
    /// Nanoseconds of an exchange that nothing hides.
    [[nodiscard]] double exchange_ns(double rows, double row_bytes) const {
        if (members_ == 1) return 0;
        const double others = static_cast<double>(members_ - 1) / members_;
        return static_cast<double>(link_.latency_ns) +
               others * rows * row_bytes / link_.bytes_per_ns;
    }

private:
    int members_;
    const Link& link_;
    bool blocking_;
};

/// One layer's products, added up.
class Layer {
public:
    Layer(const DeviceRates& rates, const Mesh& mesh, int64_t tokens, const ExpertLoad& load)
        : rates_(rates),
          products_(rates.layer_products),
          mesh_(mesh),
          tensor_ranks_(mesh.ranks_along(Axis::tensor, {})),
          expert_(mesh.expert, rates.links.along(mesh, Axis::expert), rates.blocking_exchanges),
          exposed_(rates.blocking_exchanges ? 1 : 1 - rates.kernels.tensor_overlap),
          load_(load),
          all_(static_cast<double>(tokens)),
          own_(all_ / mesh.tensor) {}

    LayerProducts sum(const std::vector<BlockProduct>& products) {
        for (const BlockProduct& product : products) {
            const auto in = static_cast<double>(product.in);
            const auto out = static_cast<double>(product.out);
            switch (product.cut) {
                case TensorCut::rows:
                    add_column_parallel(in, out);
                    break;
                case TensorCut::columns:
                    add_row_parallel(in, out);
                    break;
                case TensorCut::repeated:
                    add_repeated(in, out);
                    break;
                case TensorCut::experts:
                    add_experts(product);
                    break;
            }
        }
        return sum_;
    }

private:
    using enum OverlapOp;

    /// What computing does not hide of gathering rows of n elements from the tensor ranks, or of
    /// adding up theirs.
    [[nodiscard]] double exposed(double n) const {
        if (mesh_.tensor == 1) return 0;
        return exposed_ * rates_.links.ring_ns(tensor_ranks_, all_ * n * kElement,
                                               rates_.kernels.tensor_exchange);
    }

    void add(double forward, double input, double weight) {
        sum_.forward += forward;
        sum_.input_gradient += input;
        sum_.weight_gradient += weight;
        sum_.backward += input + weight;
    }

    /// Members gather x, and add up dx.
    void add_column_parallel(double in, double out) {
        const double part = out / mesh_.tensor;
        add(products_.ns(all_, part, in) + exposed(in), products_.ns(all_, in, part) + exposed(in),
            products_.ns(in, part, all_));
    }

    /// Members add up y, and gather dy.
    void add_row_parallel(double in, double out) {
        const double part = in / mesh_.tensor;
        add(products_.ns(all_, out, part) + exposed(out),
            products_.ns(all_, part, out) + exposed(out), products_.ns(part, out, all_));
    }

    void add_repeated(double in, double out) {
        add(products_.ns(own_, out, in), products_.ns(own_, in, out), products_.ns(in, out, own_));
    }

    /// Rows go to the ranks of their experts and come back; gradients take the reverse way.
    void add_experts(const BlockProduct& product) {
        const bool first = std::exchange(first_of_experts_, false);
        // A rank has a part of the f columns; rows of h are whole, and go to each rank of an
        // expert.
        const double parts = load_.parts;
        const double in = static_cast<double>(product.in) / (first ? 1 : parts);
        const double out = static_cast<double>(product.out) / (first ? parts : 1);
        const double experts = static_cast<double>(product.experts) * parts / mesh_.expert;
        const double mean = own_ * static_cast<double>(product.per_token) * parts;
        const double rows = mean * load_.rows;
        // A token travels to a rank once, however many of its experts are there.
        const double moved = (first ? in : out) * kElement * copies_per_row(product);
        const auto travelling = [&](OverlapOp op, double n, double k) {
            return expert_.ns(op, rows, moved, products_.outputs_ns(rows, n, k),
                              experts * products_.fixed_ns());
        };
        const double forward = travelling(first ? dispatch_gemm : gemm_combine, out, in);
        double input = travelling(first ? gemm_combine : dispatch_gemm, in, out);
        const double weight = experts * products_.ns(in, out, rows / experts);
        // F keeps only the rows of the first wave: I dispatches and computes the other waves again.
        const int waves = load_.waves();
        input += forward * (waves - 1) / waves;
        add(forward, input, weight);
        if (first) sum_.recompute += expert_.exchange_ns(rows, moved);
    }

    /// Groups of ranks that a token is sent to, divided by its k experts, if all are equally
    /// likely.
    [[nodiscard]] double copies_per_row(const BlockProduct& product) const {
        const auto k = static_cast<double>(product.per_token);
        const auto all = static_cast<double>(product.experts);
        const double groups = mesh_.expert / load_.parts;
        const double elsewhere = all - all / groups;
        double none_here = 1;
        for (double chosen = 0; chosen < k; ++chosen) {
            none_here *= std::max(0.0, elsewhere - chosen) / (all - chosen);
        }
        return groups * (1 - none_here) / k;
    }

    const DeviceRates& rates_;
    const Products& products_;
    const Mesh& mesh_;
    const std::vector<int> tensor_ranks_;
    const Team expert_;
    const double exposed_;  ///< share of what tensor ranks exchange
    const ExpertLoad load_;
    const double all_, own_;
    bool first_of_experts_ = true;
    LayerProducts sum_;
};

}  // namespace

int ExpertLoad::waves() const {
    return std::max(1, static_cast<int>(std::ceil(rows / row_bound - 1e-9)));
}

double worst_imbalance(const MoeConfig& moe, int groups) {
    if (groups == 1 || moe.experts == 0) return 1;
    const double at_one_group = static_cast<double>(std::min(moe.top_k, moe.experts / groups));
    return groups * at_one_group / static_cast<double>(moe.top_k);
}

ExpertLoad expert_load(const MoeConfig& moe, const Candidate& candidate, double imbalance) {
    const double worst = worst_imbalance(moe, candidate.expert_groups());
    return {.rows = std::min(imbalance, worst),
            .row_bound = std::min(kMoeRowFactor, worst),
            .parts = candidate.expert_tensor};
}

LayerProducts layer_products(const std::vector<BlockProduct>& products, const DeviceRates& rates,
                             const Mesh& mesh, int64_t tokens, const ExpertLoad& load) {
    return Layer(rates, mesh, tokens, load).sum(products);
}

}  // namespace vocabpipe

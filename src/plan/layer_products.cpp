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

/// Ranks that compute products together.
class Team {
public:
    Team(int members, const Link& link) : members_(members), link_(link) {}

    /// Nanoseconds of a product of `rows` rows (all members', or those of the experts), where for
    /// each a row of `row_bytes` travels before or after the product; in a combine by panels of
    /// columns instead of pieces of rows. `fixed_ns`: added once, `piece_ns`: added per piece.
    [[nodiscard]] double ns(OverlapOp op, double rows, double row_bytes, double rows_ns,
                            double fixed_ns, double piece_ns) const {
        if (members_ == 1) return rows_ns + fixed_ns + piece_ns;
        const PieceChoice choice = choose_pieces(
            {.op = op, .rows = whole(rows), .members = members_, .compute_ns = whole(rows_ns)},
            link_, {.row_bytes = whole(row_bytes), .piece_ns = std::llround(piece_ns)}, kPieces);
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
};

/// One layer's products, added up.
class Layer {
public:
    Layer(const DeviceSpec& device, const Mesh& mesh, int64_t tokens, const ExpertLoad& load)
        : products_(device),
          links_(device),
          mesh_(mesh),
          tensor_(mesh.tensor, links_.along(mesh, Axis::tensor)),
          expert_(mesh.expert, links_.along(mesh, Axis::expert)),
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

    /// Nanoseconds of a product of the tensor team; rows of `moved` elements travel.
    [[nodiscard]] double together(OverlapOp op, double n, double k, double moved) const {
        return tensor_.ns(op, all_, moved * kElement, products_.outputs_ns(all_, n, k), 0,
                          products_.fixed_ns(k));
    }

    void add(double forward, double input, double weight, double backward) {
        sum_.forward += forward;
        sum_.input_gradient += input;
        sum_.weight_gradient += weight;
        sum_.backward += backward;
    }

    /// Members gather x, and add up dx. W gathers x before its product.
    void add_column_parallel(double in, double out) {
        const double part = out / mesh_.tensor;
        const double input = together(gemm_reduce_scatter, in, part, in);
        const double weight =
            products_.ns(in, part, all_) + tensor_.exchange_ns(all_, in * kElement);
        add(together(all_gather_gemm, part, in, in), input, weight, input + weight);
    }

    /// Members add up y, and gather dy; B gathers it once for both gradients.
    void add_row_parallel(double in, double out) {
        const double part = in / mesh_.tensor;
        const double input = together(all_gather_gemm, part, out, out);
        const double weight = products_.ns(part, out, all_);
        const double again = tensor_.exchange_ns(all_, out * kElement);
        add(together(gemm_reduce_scatter, out, part, out), input, weight + again, input + weight);
    }

    void add_repeated(double in, double out) {
        const double input = products_.ns(own_, in, out);
        const double weight = products_.ns(in, out, own_);
        add(products_.ns(own_, out, in), input, weight, input + weight);
    }

    /// Rows go to the ranks of their experts and come back; gradients take the reverse way.
    void add_experts(const BlockProduct& product) {
        const bool first = std::exchange(first_of_experts_, false);
        const auto in = static_cast<double>(product.in);
        const auto out = static_cast<double>(product.out);
        const double experts = static_cast<double>(product.experts) / mesh_.expert;
        const double mean = own_ * static_cast<double>(product.per_token);
        const double rows = mean * load_.rows;
        // A token travels to a rank once, however many of its experts are there.
        const double moved = (first ? in : out) * kElement * copies_per_row(product);
        const auto travelling = [&](OverlapOp op, double n, double k) {
            return expert_.ns(op, rows, moved, products_.outputs_ns(rows, n, k),
                              experts * products_.fixed_ns(k), 0);
        };
        const double forward = travelling(first ? dispatch_gemm : gemm_combine, out, in);
        double input = travelling(first ? gemm_combine : dispatch_gemm, in, out);
        const double weight =
            products_.outputs_ns(in, out, rows) + experts * products_.fixed_ns(rows / experts);
        // F keeps only the rows of the first wave: I dispatches and computes the other waves again.
        const int waves = load_.waves();
        input += forward * (waves - 1) / waves;
        add(forward, input, weight, input + weight);
        if (first) sum_.recompute += expert_.exchange_ns(rows, moved);
    }

    /// Ranks that a token is sent to, divided by its k rows, if all experts are equally likely.
    [[nodiscard]] double copies_per_row(const BlockProduct& product) const {
        const auto k = static_cast<double>(product.per_token);
        const auto all = static_cast<double>(product.experts);
        const double elsewhere = all - all / mesh_.expert;
        double none_here = 1;
        for (double chosen = 0; chosen < k; ++chosen) {
            none_here *= std::max(0.0, elsewhere - chosen) / (all - chosen);
        }
        return mesh_.expert * (1 - none_here) / k;
    }

    const Products products_;
    const DeviceLinks links_;
    const Mesh& mesh_;
    const Team tensor_, expert_;
    const ExpertLoad load_;
    const double all_, own_;
    bool first_of_experts_ = true;
    LayerProducts sum_;
};

}  // namespace

int ExpertLoad::waves() const {
    return std::max(1, static_cast<int>(std::ceil(rows / row_bound - 1e-9)));
}

double worst_imbalance(const MoeConfig& moe, int expert_ranks) {
    if (expert_ranks == 1 || moe.experts == 0) return 1;
    const double at_one_rank = static_cast<double>(std::min(moe.top_k, moe.experts / expert_ranks));
    return expert_ranks * at_one_rank / static_cast<double>(moe.top_k);
}

ExpertLoad expert_load(const MoeConfig& moe, const Mesh& mesh, double imbalance) {
    const double worst = worst_imbalance(moe, mesh.expert);
    return {.rows = std::min(imbalance, worst),
            .row_bound = mesh.expert == 1 ? 1 : std::min(kMoeRowFactor, worst)};
}

LayerProducts layer_products(const std::vector<BlockProduct>& products, const DeviceSpec& device,
                             const Mesh& mesh, int64_t tokens, const ExpertLoad& load) {
    return Layer(device, mesh, tokens, load).sum(products);
}

}  // namespace vocabpipe

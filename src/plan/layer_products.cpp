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
    Layer(const TransformerShape& model, const DeviceSpec& device, const Mesh& mesh, int64_t tokens,
          double imbalance)
        : model_(model),
          products_(device),
          links_(device),
          mesh_(mesh),
          tensor_(mesh.tensor, links_.along(mesh, Axis::tensor)),
          expert_(mesh.expert, links_.along(mesh, Axis::expert)),
          load_(expert_load(model.moe, mesh, imbalance)),
          all_(static_cast<double>(tokens)),
          own_(all_ / mesh.tensor) {}

    LayerProducts sum() {
        for (const TransformerShape::Matrix& matrix : model_.matrices()) {
            const auto in = static_cast<double>(matrix.in);
            const auto out = static_cast<double>(matrix.out);
            using Cut = TransformerShape::Cut;
            switch (matrix.cut) {
                case Cut::columns:
                    add_columns(in, out, matrix.of_layers);
                    break;
                case Cut::rows:
                    add_rows(in, out, matrix.of_layers);
                    break;
                case Cut::repeated:
                    add_repeated(in, out, matrix.of_layers);
                    break;
                case Cut::experts:
                    add_experts(matrix);
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

    void add(double times, double forward, double input, double weight, double backward) {
        sum_.forward += times * forward;
        sum_.input_gradient += times * input;
        sum_.weight_gradient += times * weight;
        sum_.backward += times * backward;
    }

    /// Column-parallel: members gather x, and add up dx. W gathers x before its product.
    void add_columns(double in, double out, double times) {
        const double part = out / mesh_.tensor;
        const double input = together(gemm_reduce_scatter, in, part, in);
        const double weight =
            products_.ns(in, part, all_) + tensor_.exchange_ns(all_, in * kElement);
        add(times, together(all_gather_gemm, part, in, in), input, weight, input + weight);
    }

    /// Row-parallel: members add up y, and gather dy; B gathers it once for both gradients.
    void add_rows(double in, double out, double times) {
        const double part = in / mesh_.tensor;
        const double input = together(all_gather_gemm, part, out, out);
        const double weight = products_.ns(part, out, all_);
        const double again = tensor_.exchange_ns(all_, out * kElement);
        add(times, together(gemm_reduce_scatter, out, part, out), input, weight + again,
            input + weight);
    }

    void add_repeated(double in, double out, double times) {
        const double input = products_.ns(own_, in, out);
        const double weight = products_.ns(in, out, own_);
        add(times, products_.ns(own_, out, in), input, weight, input + weight);
    }

    /// Rows go to the ranks of their experts and come back; gradients take the reverse way.
    void add_experts(const TransformerShape::Matrix& matrix) {
        const bool first = std::exchange(first_of_experts_, false);
        const auto in = static_cast<double>(matrix.in);
        const auto out = static_cast<double>(matrix.out);
        const double experts = static_cast<double>(matrix.count) / mesh_.expert;
        const double mean = own_ * static_cast<double>(model_.moe.per_token);
        const double rows = mean * load_.rows;
        // A token travels to a rank once, however many of its experts are there.
        const double moved = static_cast<double>(model_.hidden_size) * kElement * copies_per_row();
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
        add(matrix.of_layers, forward, input, weight, input + weight);
        if (first) {
            sum_.recompute += matrix.of_layers * expert_.exchange_ns(rows, moved);
        }
    }

    /// Ranks that a token is sent to, divided by its k rows, if all experts are equally likely.
    [[nodiscard]] double copies_per_row() const {
        const auto k = static_cast<double>(model_.moe.per_token);
        const auto all = static_cast<double>(model_.moe.experts);
        const double elsewhere = all - all / mesh_.expert;
        double none_here = 1;
        for (double chosen = 0; chosen < k; ++chosen) {
            none_here *= std::max(0.0, elsewhere - chosen) / (all - chosen);
        }
        return mesh_.expert * (1 - none_here) / k;
    }

    const TransformerShape& model_;
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

double worst_imbalance(const ExpertsShape& moe, int expert_ranks) {
    if (expert_ranks == 1 || moe.layers == 0) return 1;
    const double at_one_rank =
        static_cast<double>(std::min(moe.per_token, moe.experts / expert_ranks));
    return expert_ranks * at_one_rank / static_cast<double>(moe.per_token);
}

ExpertLoad expert_load(const ExpertsShape& moe, const Mesh& mesh, double imbalance) {
    const double worst = worst_imbalance(moe, mesh.expert);
    return {.rows = std::min(imbalance, worst),
            .row_bound = mesh.expert == 1 ? 1 : std::min(kMoeRowFactor, worst)};
}

LayerProducts layer_products(const TransformerShape& model, const DeviceSpec& device,
                             const Mesh& mesh, int64_t tokens, double imbalance) {
    return Layer(model, device, mesh, tokens, imbalance).sum();
}

}  // namespace vocabpipe

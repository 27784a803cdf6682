// SPDX-License-Identifier: Apache-2.0
#include "src/plan/unit_costs.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

/// Matrix products of a device: m x n outputs over k terms (DeviceSpec).
class Products {
public:
    explicit Products(const DeviceSpec& device)
        : flops_per_ns_(device.peak_tflops.value * 1e3 * device.dense_efficiency.value),
          idle_(device.product_idle_outputs.value) {}
    [[nodiscard]] double ns(double m, double n, double k) const {
        return 2 * k * (m * n + idle_) / flops_per_ns_;
    }
    /// [m, rows] outputs, or [rows, m], over k terms.
    [[nodiscard]] Rows rows_of_outputs(double m, double k) const {
        return {.fixed = ns(m, 0, k), .per_row = ns(m, 1, k) - ns(m, 0, k)};
    }

private:
    double flops_per_ns_, idle_;
};

UnitCosts from_device(const PlanOptions& options) {
    const TransformerShape& model = options.model;
    const DeviceSpec& device = options.device;
    const auto tokens = static_cast<double>(options.micro_batch_size * options.seq_length);
    const auto h = static_cast<double>(model.hidden_size);
    constexpr double kElement = 2;   // bytes of bf16
    constexpr double kGradient = 4;  // bytes of fp32

    const double peak = device.peak_tflops.value * 1e3;  // FLOPs per ns
    const double bytes_per_ns = device.memory_gb_per_s.value * device.elementwise_efficiency.value;
    const Products products(device);
    const double attention = tokens * model.attention_flops(options.seq_length) /
                             (peak * device.attention_efficiency.value);

    UnitCosts costs;
    for (const TransformerShape::Matrix& matrix : model.matrices()) {
        const auto k = static_cast<double>(matrix.in);
        const auto n = static_cast<double>(matrix.out);
        const double rows = tokens * matrix.rows;
        const double times = static_cast<double>(matrix.count) * matrix.of_layers;
        costs.forward += times * products.ns(rows, n, k);
        costs.input_gradient += times * products.ns(rows, k, n);
        costs.weight_gradient += times * products.ns(k, n, rows);
    }
    costs.forward += attention + tokens * model.elementwise_forward() * kElement / bytes_per_ns;
    // Fused attention recomputes the scores: five products backward where there are two forward.
    costs.input_gradient +=
        2.5 * attention + tokens * model.elementwise_backward() * kElement / bytes_per_ns;
    costs.backward = costs.input_gradient + costs.weight_gradient;
    if (options.recompute == Recompute::full) costs.recompute = costs.forward;
    if (options.recompute == Recompute::selective) {
        costs.recompute = tokens * model.elementwise_recompute() * kElement / bytes_per_ns;
    }
    costs.logits = products.rows_of_outputs(tokens, h);
    costs.output_gradient = {.per_row = products.ns(tokens, h, 1)};
    costs.output_weight_gradient = products.rows_of_outputs(h, tokens);
    costs.softmax_per_row = tokens * device.softmax_bytes_per_logit.value / bytes_per_ns;
    costs.whole_softmax_per_row =
        tokens * device.whole_softmax_bytes_per_logit.value / bytes_per_ns;
    costs.embedding = 2 * tokens * h * kElement / bytes_per_ns;  // rows read, rows written
    // dy is read, and the rows of all tokens are read, added to and written.
    costs.embedding_gradient = tokens * h * (kElement + 2 * kGradient) / bytes_per_ns;
    costs.vocabulary_pass = device.vocabulary_pass_overhead_us.value * 1e3;
    costs.per_parameter_byte = 1 / bytes_per_ns;
    costs.overlapped = 1 / device.overlap_efficiency.value;
    return costs;
}

/// Sums over stages or ranks, divided by the layers or rows that they ran.
UnitCosts from_profile(const Profile& profile, const PlanOptions& options) {
    using enum Op;
    const auto sum = [](const std::vector<TableCosts::OpCosts>& table, Op op) {
        double total = 0;
        for (const TableCosts::OpCosts& costs : table) {
            total += static_cast<double>(costs[static_cast<size_t>(op)]);
        }
        return total;
    };
    const auto layers = static_cast<double>(profile.model.layers);
    const auto rows = static_cast<double>(profile.output.vocab_size());
    UnitCosts costs;
    costs.forward = sum(profile.costs.stage_ns, F) / layers;
    costs.input_gradient = sum(profile.costs.stage_ns, I) / layers;
    costs.weight_gradient = sum(profile.costs.stage_ns, W) / layers;
    costs.backward = sum(profile.costs.stage_ns, B) / layers;
    costs.recompute =
        recompute_ns_per_layer(profile, options.recompute, options.model.elementwise_recompute());
    // S has two products with one barrier and one otherwise, T the others of three, and the softmax
    // is split two to one: two equations for a product and the softmax.
    const double products = profile.barriers == Barriers::one ? 2 : 1;
    const double score = sum(profile.costs.rank_ns, S) / rows;
    const double weight = sum(profile.costs.rank_ns, T) / rows;
    const double both = score + weight;
    // score = products p + 2/3 s, both = 3 p + s. With one barrier p cancels: all is product.
    costs.softmax_per_row = products == 2 ? 0 : std::clamp(3 * score - both, 0.0, both);
    costs.whole_softmax_per_row = costs.softmax_per_row;
    costs.logits.per_row = (both - costs.softmax_per_row) / 3;
    costs.output_gradient = costs.output_weight_gradient = costs.logits;
    costs.embedding =
        sum(profile.costs.rank_ns, E) / static_cast<double>(profile.input.owners().size());
    costs.embedding_gradient = sum(profile.costs.rank_ns, G);
    const int64_t optimizer_bytes = profile.sizes.dtype == DType::bf16 ? 12 : 8;
    double bytes = 0;
    for (const PersistentBytes& rank : profile.persistent) {
        bytes += static_cast<double>(rank.gradients / 4 * kNormTraffic +
                                     rank.optimizer / optimizer_bytes * kUpdateTraffic);
    }
    const double step = sum(profile.costs.rank_ns, Report) + sum(profile.costs.rank_ns, Update);
    costs.per_parameter_byte = bytes > 0 ? step / bytes : 0;
    return costs;
}

}  // namespace

UnitCosts unit_costs(const PlanOptions& options) {
    return options.profile ? from_profile(*options.profile, options) : from_device(options);
}

}  // namespace vocabpipe

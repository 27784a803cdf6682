// SPDX-License-Identifier: Apache-2.0
#include "src/plan/unit_costs.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

UnitCosts from_device(const PlanOptions& options) {
    const TransformerShape& model = options.model;
    const DeviceSpec& device = options.device;
    const auto tokens = static_cast<double>(options.micro_batch_size * options.seq_length);
    const auto h = static_cast<double>(model.hidden_size);
    constexpr double kElement = 2;   // bytes of bf16
    constexpr double kGradient = 4;  // bytes of fp32

    const double peak = device.peak_tflops.value * 1e3;  // FLOPs per ns
    const double bytes_per_ns = device.memory_gb_per_s.value * device.elementwise_efficiency.value;
    const double dense = tokens * model.dense_flops() / (peak * device.dense_efficiency.value);
    const double attention = tokens * model.attention_flops(options.seq_length) /
                             (peak * device.attention_efficiency.value);

    UnitCosts costs;
    costs.forward =
        dense + attention + tokens * model.elementwise_forward() * kElement / bytes_per_ns;
    // Fused attention recomputes the scores: five products backward where there are two forward.
    costs.input_gradient =
        dense + 2.5 * attention + tokens * model.elementwise_backward() * kElement / bytes_per_ns;
    costs.weight_gradient = dense;
    costs.backward = costs.input_gradient + costs.weight_gradient;
    if (options.recompute == Recompute::full) costs.recompute = costs.forward;
    if (options.recompute == Recompute::selective) {
        costs.recompute = tokens * model.elementwise_recompute() * kElement / bytes_per_ns;
    }
    costs.product_per_row = 2 * tokens * h / (peak * device.vocabulary_efficiency.value);
    costs.softmax_per_row = tokens * device.softmax_bytes_per_logit.value / bytes_per_ns;
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
    costs.product_per_row = (both - costs.softmax_per_row) / 3;
    costs.embedding =
        sum(profile.costs.rank_ns, E) / static_cast<double>(profile.input.owners().size());
    costs.embedding_gradient = sum(profile.costs.rank_ns, G);
    const int64_t optimizer_bytes = profile.sizes.dtype == DType::bf16 ? 12 : 8;
    double bytes = 0;
    for (const PersistentBytes& rank : profile.persistent) {
        bytes += static_cast<double>(rank.gradients / 4 * kNormTraffic +
                                     rank.optimizer / optimizer_bytes * kUpdateTraffic);
    }
    const double step = sum(profile.costs.rank_ns, Norm) + sum(profile.costs.rank_ns, Update);
    costs.per_parameter_byte = bytes > 0 ? step / bytes : 0;
    return costs;
}

}  // namespace

UnitCosts unit_costs(const PlanOptions& options) {
    return options.profile ? from_profile(*options.profile, options) : from_device(options);
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "src/plan/unit_costs.hpp"

#include "src/model/blocks/model_layers.hpp"
#include "src/plan/layer_products.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

constexpr double kElementBytes = 2;  // bytes of bf16

/// Bytes per nanosecond of operators that move bytes.
double moved_bytes_per_ns(const DeviceSpec& device) {
    return device.memory_gb_per_s.value * device.elementwise_efficiency.value;
}

/// [m, rows] outputs, or [rows, m], over k terms.
Rows rows_of_outputs(const Products& products, double m, double k) {
    return {.fixed = products.fixed_ns(k), .per_row = products.outputs_ns(m, 1, k)};
}

LayerCosts layer_on_device(const PlanOptions& options, const Candidate& candidate,
                           const BlockWork& work) {
    const DeviceSpec& device = options.device;
    const Mesh& mesh = candidate.mesh;
    const int64_t tokens = candidate.micro_batch_size * options.seq_length;
    // Both heads and rows of the residual stream divide by t.
    const double own = static_cast<double>(tokens) / mesh.tensor;
    const double attention = own * work.heads_flops /
                             (device.peak_tflops.value * 1e3 * device.attention_efficiency.value);
    const auto moving = [&](int64_t elements) {
        return own * static_cast<double>(elements) * kElementBytes / moved_bytes_per_ns(device);
    };
    const LayerProducts products =
        layer_products(work.products, device, mesh, tokens,
                       expert_load(options.model.config.moe, mesh, options.moe_imbalance));
    // Fused attention recomputes the scores: five products backward for two forward.
    const double backward = 2.5 * attention + moving(work.moved.backward);
    LayerCosts costs{.forward = products.forward + attention + moving(work.moved.forward),
                     .input_gradient = products.input_gradient + backward,
                     .weight_gradient = products.weight_gradient,
                     .backward = products.backward + backward};
    if (candidate.recompute == Recompute::full) costs.recompute = costs.forward;
    if (candidate.recompute == Recompute::selective) {
        costs.recompute =
            products.recompute + moving(work.moved.recompute + work.moved.recompute_heads);
    }
    return costs;
}

UnitCosts from_device(const PlanOptions& options, const Candidate& candidate) {
    const DeviceSpec& device = options.device;
    const auto tokens = static_cast<double>(candidate.micro_batch_size * options.seq_length);
    const auto h = static_cast<double>(options.model.config.hidden_size);
    constexpr double kGradient = 4;  // bytes of fp32
    const double bytes_per_ns = moved_bytes_per_ns(device);
    const Products products(device);

    UnitCosts costs;
    costs.layers = ModelLayers(options.model.config).map([&](const CountedLayer& layer) {
        return layer_on_device(options, candidate, layer.block.work(options.seq_length));
    });
    costs.logits = rows_of_outputs(products, tokens, h);
    costs.output_gradient = {.per_row = products.ns(tokens, h, 1)};
    costs.output_weight_gradient = rows_of_outputs(products, h, tokens);
    costs.softmax_per_row = tokens * device.softmax_bytes_per_logit.value / bytes_per_ns;
    costs.whole_softmax_per_row =
        tokens * device.whole_softmax_bytes_per_logit.value / bytes_per_ns;
    costs.embedding = 2 * tokens * h * kElementBytes / bytes_per_ns;  // rows read, rows written
    // dy is read, and the rows of all tokens are read, added to and written.
    costs.embedding_gradient = tokens * h * (kElementBytes + 2 * kGradient) / bytes_per_ns;
    costs.vocabulary_pass = device.vocabulary_pass_overhead_us.value * 1e3;
    costs.per_parameter_byte = 1 / bytes_per_ns;
    costs.overlapped = 1 / device.overlap_efficiency.value;
    return costs;
}

/// Sums over stages or ranks, divided by the layers or rows that they ran.
UnitCosts from_profile(const Profile& profile, const PlanOptions& options, Recompute recompute) {
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
    costs.layers = ModelLayers(options.model.config).map([&](const CountedLayer& layer) {
        const auto elements =
            static_cast<double>(layer.block.work(options.seq_length).moved.recompute);
        return LayerCosts{.forward = sum(profile.costs.stage_ns, F) / layers,
                          .input_gradient = sum(profile.costs.stage_ns, I) / layers,
                          .weight_gradient = sum(profile.costs.stage_ns, W) / layers,
                          .backward = sum(profile.costs.stage_ns, B) / layers,
                          .recompute = recompute_ns_per_layer(profile, recompute, elements)};
    });
    // S has two of the three products with one barrier and else one, T has the rest; the softmax is
    // split two to one between S and T. So there are two equations for the time of a product and of
    // the softmax.
    const double products = profile.barriers == Barriers::one ? 2 : 1;
    const double score = sum(profile.costs.rank_ns, S) / rows;
    const double weight = sum(profile.costs.rank_ns, T) / rows;
    const double both = score + weight;
    // score = products p + 2/3 s, both = 3 p + s. With one barrier the softmax cannot be told
    // apart: all counts as product.
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

UnitCosts unit_costs(const PlanOptions& options, const Candidate& candidate) {
    return options.profile ? from_profile(*options.profile, options, candidate.recompute)
                           : from_device(options, candidate);
}

}  // namespace vocabpipe

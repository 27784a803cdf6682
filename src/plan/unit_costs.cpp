// SPDX-License-Identifier: Apache-2.0
#include "src/plan/unit_costs.hpp"

#include "src/model/blocks/counted_depth.hpp"
#include "src/model/blocks/model_layers.hpp"
#include "src/plan/context_costs.hpp"
#include "src/plan/layer_products.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

constexpr double kElementBytes = 2;  // bytes of bf16

/// [m, rows] outputs, or [rows, m], over k terms.
Rows rows_of_outputs(const Products& products, double m, double k) {
    return {.fixed = products.fixed_ns(), .per_row = products.outputs_ns(m, 1, k)};
}
/// [m, n] outputs over as many terms as rows.
Rows rows_of_terms(const Products& products, double m, double n) {
    const double none = products.ns(m, n, 0);
    return {.fixed = none, .per_row = products.ns(m, n, 1) - none};
}

struct AttentionCosts {
    double forward = 0, backward = 0;
};
/// Nanoseconds of a rank's heads, for `own` of the tokens that all ranks' heads work on.
AttentionCosts attention_costs(const DeviceRates& rates, const BlockWork& work, double own,
                               int64_t seq_length) {
    const KernelRates& kernels = rates.kernels;
    if (kernels.score_bytes_forward == 0) {
        const double forward = own * work.heads_flops / rates.attention_flops_per_ns;
        // It recomputes the scores: five products backward for two forward.
        return {.forward = forward, .backward = 2.5 * forward};
    }
    // All scores are computed, those of masked pairs too.
    const double flops = 2 * own * work.heads_flops;
    const double scores = own * static_cast<double>(work.heads) * static_cast<double>(seq_length);
    const auto ns = [&](double products, double bytes) {
        return products * flops / rates.products.flops_per_ns() +
               scores * bytes / rates.moved_bytes_per_ns;
    };
    return {.forward = ns(1, kernels.score_bytes_forward),
            .backward = ns(2, kernels.score_bytes_backward)};
}

LayerTimes layer_on_device(const ModelOnDevice& model, const Candidate& candidate,
                           const BlockWork& work) {
    const DeviceRates& rates = model.rates;
    const KernelRates& kernels = rates.kernels;
    const int64_t seq_length = model.config.seq_length;
    const Mesh& mesh = candidate.mesh;
    const int64_t tokens = candidate.micro_batch_size * seq_length / mesh.context;
    const double own = static_cast<double>(tokens) / mesh.tensor;
    const double own_rows = rates.sequence_parallel ? own : static_cast<double>(tokens);
    const auto moving = [&](int64_t MovedElements::*pass) {
        const auto residual = static_cast<double>(work.moved_of_residual.*pass);
        const double heads_and_columns = static_cast<double>(work.moved.*pass) - residual;
        return (own * heads_and_columns * kernels.activation_moves +
                own_rows * residual * kernels.residual_moves) *
               kElementBytes / rates.moved_bytes_per_ns;
    };
    const LayerProducts products =
        layer_products(work.products, rates, mesh, tokens,
                       expert_load(model.config.moe, candidate, model.moe_imbalance));
    const ContextCosts exchange = context_costs(model, candidate, candidate.context_form, work);
    AttentionCosts attention = attention_costs(rates, work, own, seq_length);
    attention.forward = exchange.beside(exchange.forward, attention.forward);
    attention.backward = exchange.beside(exchange.backward, attention.backward);
    const double launch = rates.layer_launch_ns;  // a backward launches 1.5 as many
    const double input_gradient = attention.backward + moving(&MovedElements::backward);
    LayerTimes costs{
        .forward = std::max(products.forward + attention.forward + moving(&MovedElements::forward),
                            launch),
        .input_gradient = std::max(products.input_gradient + input_gradient, launch),
        .weight_gradient = std::max(products.weight_gradient, launch / 2)};
    costs.backward = std::max(products.backward + input_gradient, 1.5 * launch);
    if (candidate.recompute == Recompute::full) costs.recompute = costs.forward;
    if (candidate.recompute == Recompute::selective) {
        // Where scores are in memory, the heads are what is made again (Korthikanti et al. 2022).
        costs.recompute = kernels.score_bytes_forward > 0
                              ? attention.forward
                              : products.recompute + moving(&MovedElements::recompute) +
                                    moving(&MovedElements::recompute_heads);
        // Layers of one's own may make products and heads again.
        if (work.recompute_flops > 0) {
            costs.recompute +=
                (products.forward + attention.forward) * work.recompute_flops / work.flops();
        }
    }
    return costs;
}

}  // namespace

void LayerTimes::add(const LayerTimes& other) {
    for (double LayerTimes::*const pass :
         {&LayerTimes::forward, &LayerTimes::input_gradient, &LayerTimes::weight_gradient,
          &LayerTimes::backward, &LayerTimes::recompute}) {
        this->*pass += other.*pass;
    }
}

UnitCosts unit_costs(const ModelOnDevice& model, const Candidate& candidate) {
    const ModelConfig& config = model.config;
    const DeviceRates& rates = model.rates;
    const auto tokens = static_cast<double>(candidate.micro_batch_size * config.seq_length /
                                            candidate.mesh.context);
    const auto h = static_cast<double>(config.hidden_size);
    constexpr double kGradient = 4;  // bytes of fp32
    const double bytes_per_ns = rates.moved_bytes_per_ns;
    const Products& products = rates.products;

    UnitCosts costs;
    const LayerTeams teams{.expert = candidate.mesh.expert,
                           .expert_tensor = candidate.expert_tensor};
    const auto times = [&](const BlockWork& work) {
        return layer_on_device(model, candidate, work);
    };
    costs.layers = ModelLayers(config, teams).map([&](const CountedLayer& layer) {
        return times(layer.block.work(config.seq_length));
    });
    const int depths = config.mtp_num_layers;
    if (depths > 0) {
        const LayerTimes depth = times(CountedDepth(config, teams).work(config.seq_length));
        for (int k = 0; k < depths; ++k) costs.mtp_layers.add(depth);
    }
    // Rows of the output layer: of the next token, and of each depth.
    const double rows = tokens * config.predicted_tokens();
    costs.logits = rows_of_outputs(products, rows, h);
    costs.output_gradient = rows_of_terms(products, rows, h);
    costs.output_weight_gradient = rows_of_outputs(products, h, rows);
    costs.softmax_per_row = rows * rates.softmax_bytes / bytes_per_ns;
    costs.whole_softmax_per_row = rows * rates.whole_softmax_bytes / bytes_per_ns;
    const auto gather = [&](double of_vocabulary) {
        return rates.links.ring_ns(candidate.mesh.ranks_along(Axis::tensor, {}),
                                   of_vocabulary * rows * kElementBytes,
                                   rates.kernels.tensor_exchange);
    };
    costs.gathered_logits = {.fixed = gather(0), .per_row = gather(1) - gather(0)};
    costs.embedding = 2 * tokens * h * kElementBytes / bytes_per_ns;  // rows read, rows written
    // dy is read, and the rows of all tokens are read, added to and written: for the first layer,
    // and once more for all depths.
    costs.embedding_gradient =
        (depths > 0 ? 2 : 1) * tokens * h * (kElementBytes + 2 * kGradient) / bytes_per_ns;
    costs.vocabulary_pass = rates.vocabulary_pass_ns;
    costs.per_parameter_byte = 1 / bytes_per_ns;
    costs.overlapped = rates.overlapped;
    return costs;
}

}  // namespace vocabpipe

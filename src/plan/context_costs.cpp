// SPDX-License-Identifier: Apache-2.0
#include "src/plan/context_costs.hpp"

#include "src/model/blocks/panel_exchange.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

/// Bytes that all context ranks of a replica send together in one direction of an exchange.
double sent_bytes(const Candidate& candidate, int64_t seq_length, double columns) {
    return static_cast<double>(candidate.micro_batch_size * seq_length) * columns /
           candidate.mesh.tensor * static_cast<double>(size_of(DType::bf16));
}

}  // namespace

double ContextCosts::beside(double exchange, double attention) const {
    const double first = exchange / panels;
    return first + std::max(attention, exchange - first + attention / panels);
}

ContextCosts context_costs(const ModelOnDevice& model, const Candidate& candidate, ContextForm form,
                           const BlockWork& work) {
    const Mesh& mesh = candidate.mesh;
    if (mesh.context == 1 || work.heads == 0) return {};
    const std::vector<int> ranks = mesh.ranks_along(Axis::context, {});
    const auto ns = [&](double columns) {
        return model.rates.links.ring_ns(ranks,
                                         sent_bytes(candidate, model.config.seq_length, columns));
    };
    const auto q = static_cast<double>(work.query_columns);
    const auto kv = static_cast<double>(work.kv_columns);
    const int64_t heads = model.config.kv_heads() / mesh.tensor;
    const int wanted = model.rates.blocking_exchanges ? 1 : ContextExchange{}.panels;
    if (form == ContextForm::allgather) {
        // The first rank, whose last queries see all keys, gets all of them, and sends gradients of
        // all. The others exchange less, and wait for it.
        return {.forward = ns(kv), .backward = 2 * ns(kv), .panels = panels_of(heads, wanted)};
    }
    const double one = mesh.context;  // an all-to-all sends each element to one rank
    return {.forward = ns((2 * q + kv) / one),
            .backward = ns((4 * q + 2 * kv) / one),
            .panels = panels_of(heads / mesh.context, wanted)};
}

ContextForm faster_context_form(const ModelOnDevice& model, const Candidate& candidate) {
    const ModelConfig& config = model.config;
    const Mesh& mesh = candidate.mesh;
    if (mesh.context == 1 || config.kv_heads() / mesh.tensor % mesh.context != 0) {
        return ContextForm::allgather;
    }
    const BlockWork attention{.heads = config.num_attention_heads,
                              .query_columns = config.query_columns(),
                              .kv_columns = config.key_value_columns()};
    const auto ns = [&](ContextForm form) {
        const ContextCosts costs = context_costs(model, candidate, form, attention);
        return costs.forward + costs.backward;
    };
    return ns(ContextForm::a2a) < ns(ContextForm::allgather) ? ContextForm::a2a
                                                             : ContextForm::allgather;
}

}  // namespace vocabpipe

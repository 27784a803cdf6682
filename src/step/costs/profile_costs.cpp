// SPDX-License-Identifier: Apache-2.0
#include "src/step/costs/profile_costs.hpp"

#include "vocabpipe/with_recomputation.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace vocabpipe {

namespace {

using enum Op;

int64_t& of(TableCosts::OpCosts& costs, Op op) {
    return costs[static_cast<size_t>(op)];
}

int64_t scaled(int64_t value, double by) {
    return std::llround(static_cast<double>(value) * by);
}

/// Share of the output layer's products that S computes: scores, and with one barrier also the
/// input gradient (arXiv 2411.05288, sections 4.2 and 4.3).
double score_part(Barriers barriers) {
    return barriers == Barriers::one ? 2.0 / 3 : 1.0 / 3;
}

double sum_of(const std::vector<TableCosts::OpCosts>& table, std::initializer_list<Op> ops) {
    double total = 0;
    for (const TableCosts::OpCosts& costs : table) {
        for (const Op op : ops) total += static_cast<double>(cost_in(costs, op));
    }
    return total;
}

}  // namespace

ProfileCosts::ProfileCosts(const Profile& profile, Recompute recompute,
                           const SelectiveWork& selective, int layers)
    : profile_(profile),
      recompute_(recompute),
      selective_(selective),
      layers_(layers),
      recompute_ns_(recompute_ns_per_layer(profile, recompute, selective.elements)) {}

std::vector<int> ProfileCosts::layers_per_stage(std::span<const int> rank_of_stage,
                                                VocabMode mode) const {
    const ProfiledModel& model = profile_.model;
    const int layers = layers_ > 0 ? layers_ : model.layers;
    if (layers == 0) return std::vector<int>(rank_of_stage.size(), 0);
    if (layers_ == 0 && mode != VocabMode::redistributed &&
        model.layers_per_stage.size() == rank_of_stage.size()) {
        return model.layers_per_stage;
    }
    const double trained = sum_of(profile_.costs.stage_ns, {F, B}) + recompute_ns_ * model.layers;
    const double output =  // in transformer layers
        sum_of(profile_.costs.rank_ns, {S, T}) * model.layers / std::max(1.0, trained);
    return vocabpipe::layers_per_stage(layers, rank_of_stage, mode, {.output_layer = output});
}

StepPrice ProfileCosts::price(const Schedule& placed, const std::vector<int>& layers) const {
    StepPrice price{.costs = profile_.costs, .sizes = profile_.sizes};
    const bool same_stages =
        profile_.rank_of_stage == placed.rank_of_stage && profile_.model.layers_per_stage == layers;
    const bool same_shards = profile_.input == placed.input && profile_.output == placed.output &&
                             profile_.barriers == placed.barriers;
    if (same_stages && same_shards) {
        price.persistent = profile_.persistent;
    } else {
        if (!same_stages) set_stages(price, layers);
        set_shards(price, placed);
        price.remark =
            "costs scaled from a profile of " + std::to_string(profile_.ranks()) + " ranks";
    }
    if (price.sizes.tensor > 1) set_tensor_ranks(price, placed.ranks);
    if (recompute_ != Recompute::none) set_recomputation(price, layers);
    price.costs.layers_per_stage = mean_layers(layers, placed.stages);
    price.order = PassCosts::of(price.costs, price.sizes, placed);
    return price;
}

/// All stages together, divided by layers.
void ProfileCosts::set_stages(StepPrice& price, const std::vector<int>& layers) const {
    TableCosts::OpCosts sum{};
    StageBytes bytes;
    const double measured = std::max(profile_.model.layers, 1);
    for (int stage = 0; stage < profile_.stages(); ++stage) {
        const auto s = static_cast<size_t>(stage);
        const StageBytes& own = profile_.sizes.stages[s];
        for (size_t op = 0; op < sum.size(); ++op) sum[op] += profile_.costs.stage_ns[s][op];
        bytes.saved += own.saved;
        bytes.recomputed += own.recomputed;
        bytes.for_weight += own.for_weight;
        for (int64_t StageBytes::*of_op :
             {&StageBytes::forward_workspace, &StageBytes::backward_workspace,
              &StageBytes::input_gradient_workspace, &StageBytes::weight_gradient_workspace}) {
            bytes.*of_op = std::max(bytes.*of_op, own.*of_op);
        }
    }
    price.costs.stage_ns.clear();
    price.sizes.stages.clear();
    for (const int count : layers) {
        TableCosts::OpCosts pass{};
        for (size_t op = 0; op < sum.size(); ++op) pass[op] = scaled(sum[op], count / measured);
        price.costs.stage_ns.push_back(pass);
        StageBytes of_stage = bytes;  // workspace does not grow with layers
        of_stage.saved = scaled(bytes.saved, count / measured);
        of_stage.recomputed = scaled(bytes.recomputed, count / measured);
        of_stage.for_weight = scaled(bytes.for_weight, count / measured);
        price.sizes.stages.push_back(of_stage);
    }
}

/// Totals over all measured ranks: the output layer's products grow with rows; other costs are the
/// same on every rank that has rows.
void ProfileCosts::set_shards(StepPrice& price, const Schedule& placed) const {
    TableCosts::OpCosts sum{};
    ShardBytes bytes;
    for (int rank = 0; rank < profile_.ranks(); ++rank) {
        const auto r = static_cast<size_t>(rank);
        for (size_t op = 0; op < sum.size(); ++op) {
            const int64_t cost = profile_.costs.rank_ns[r][op];
            const bool adds = static_cast<Op>(op) == S || static_cast<Op>(op) == T;
            sum[op] = adds ? sum[op] + cost : std::max(sum[op], cost);
        }
        bytes.exp_logits += profile_.sizes.shards[r].exp_logits;
        bytes.score_workspace += profile_.sizes.shards[r].score_workspace;
        bytes.weight_gradient_workspace += profile_.sizes.shards[r].weight_gradient_workspace;
    }
    const int64_t products = of(sum, S) + of(sum, T);
    price.costs.rank_ns.clear();
    price.sizes.shards.clear();
    for (int rank = 0; rank < placed.ranks; ++rank) {
        const double share = static_cast<double>(placed.output.rows(rank)) /
                             static_cast<double>(profile_.output.vocab_size());
        TableCosts::OpCosts pass = sum;
        of(pass, S) = scaled(products, share * score_part(placed.barriers));
        of(pass, T) = scaled(products, share) - of(pass, S);
        if (placed.input.rows(rank) == 0) of(pass, E) = of(pass, G) = 0;
        price.costs.rank_ns.push_back(pass);
        price.sizes.shards.push_back(
            {.exp_logits = scaled(bytes.exp_logits, share),
             .score_workspace = scaled(bytes.score_workspace, share),
             .weight_gradient_workspace = scaled(bytes.weight_gradient_workspace, share)});
    }
}

/// Divides what stages save into kept and recomputed bytes. If the profile was measured with
/// another granularity, R costs as much as F, or for selective recomputation `recompute_ns_`.
void ProfileCosts::set_recomputation(StepPrice& price, const std::vector<int>& layers) const {
    if (recomputed_in(profile_) == recompute_) return;
    const int64_t selective = price.sizes.tokens * selective_.bytes;
    for (size_t stage = 0; stage < layers.size(); ++stage) {
        divide_saved(price.sizes.stages[stage], recompute_, layers[stage] * selective);
        TableCosts::OpCosts& pass = price.costs.stage_ns[stage];
        of(pass, R) =
            recompute_ == Recompute::full
                ? of(pass, F)
                : std::min(of(pass, F), std::max<int64_t>(scaled(layers[stage], recompute_ns_), 1));
    }
}

/// A profile describes one tensor rank. Summing the gradients of replicated parameters (norms,
/// biases) is not simulated: they are a few rows.
void ProfileCosts::set_tensor_ranks(StepPrice& price, int pipeline) const {
    const int tensor = price.sizes.tensor;
    price.remark +=
        (price.remark.empty() ? "" : ", ") + std::to_string(tensor) + " tensor ranks each";
    price.sizes.buckets.assign(static_cast<size_t>(pipeline), {});
    std::vector<PersistentBytes> of_world;
    for (const PersistentBytes& of_rank : price.persistent) {
        of_world.insert(of_world.end(), static_cast<size_t>(tensor), of_rank);
    }
    price.persistent = std::move(of_world);
}

}  // namespace vocabpipe

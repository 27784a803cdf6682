// SPDX-License-Identifier: Apache-2.0
// Each wave takes four steps: place its lists, dispatch tokens, compute the experts on rows as they
// arrive, and combine the results at the tokens' homes. F runs wave 0 last, so that its tensors are
// in memory for the backward.
#include "src/model/blocks/moe/team_experts.hpp"

#include "src/model/blocks/whole_exchange.hpp"
#include "vocabpipe/tile_link.hpp"

#include <optional>
#include <span>
#include <utility>

namespace vocabpipe {

namespace {

/// The rows of a wave within memory for the budget.
Tensor rows_in(const PlacedWave& wave, Tensor of_budget) {
    return of_budget.row_range(0, wave.row_count());
}

}  // namespace

/// What F read back to the host for a microbatch.
struct TeamExperts::Kept {
    int waves = 1;
    PlacedWave first;
    // Kept only with several waves; `plan` refers to `chosen`.
    std::vector<int32_t> chosen;
    std::optional<RoutingPlan> plan;

    /// Waits until all members' choices have arrived.
    Kept(const StagePass& pass, const RoutingShape& shape, const TeamRoutes& routes)
        : chosen(static_cast<size_t>(routes.chosen.size())) {
        pass.op().read_to_host(pass.ctx, ExpertRows::integers(routes.chosen), chosen);
        const auto count = static_cast<size_t>(shape.tokens * shape.per_token);
        std::vector<std::span<const int32_t>> choices;
        for (int member = 0; member < shape.members; ++member) {
            choices.push_back(
                std::span(chosen).subspan(2 * count * static_cast<size_t>(member), count));
        }
        plan.emplace(shape, pass.experts->rank(), std::move(choices));
        waves = plan->waves();
    }
    void keep_first(PlacedWave wave) {
        first = std::move(wave);
        if (waves > 1) return;
        plan.reset();
        chosen = {};
    }
};

/// The state that the functions below share.
struct TeamExperts::Pass {
    const StagePass& pass;
    const TeamSizes sizes;
    Kept& kept;
    const TeamMemory& memory;
    ConstTensor dy, x;
    const TeamRoutes& routes;
    const Experts::Saved& saved;
    const Experts::Gradients* gradients = nullptr;

    [[nodiscard]] const kernels::Operators& op() const { return pass.op(); }
    [[nodiscard]] TeamWave team(const PlacedWave& wave, std::string_view name) const {
        return {.pass = pass, .sizes = sizes, .wave = wave, .memory = memory, .name = name};
    }
    /// Overwrites the lists of another wave.
    [[nodiscard]] PlacedWave place(int number) const {
        return place_wave(pass.ctx, sizes.shape, kept.plan->wave(number),
                          ExpertRows::integers(routes.lists));
    }
    /// The weights of a wave's copies.
    [[nodiscard]] Tensor weights(const PlacedWave& wave) const {
        const Tensor weights = memory.weights.row_range(0, wave.copy_count());
        op().gather_rows(pass.ctx, routes.chosen, wave.weights_of_copy, 1, {}, weights);
        return weights;
    }
    /// Products choose kernels by the mean number of rows of an expert, so the pieces in which rows
    /// come do not change bits.
    [[nodiscard]] PartOfRows products() const {
        return {pass.ctx, sizes.shape.mean_rows_of_expert()};
    }
};

TeamExperts::TeamExperts(const ExpertsOptions& options, const ExpertWeights& weights)
    : options_(options), weights_(weights), kept_(std::make_shared<KeptOnHost<Kept>>()) {}

TeamSizes TeamExperts::sizes(int64_t tokens, DType dtype) const {
    RoutingShape shape{.members = options_.ranks,
                       .tokens = tokens,
                       .experts = options_.experts,
                       .per_token = options_.per_token,
                       .expert_tensor = options_.expert_tensor,
                       .budget = 0,
                       .pieces = options_.pieces.dispatch};
    shape.budget = row_budget(shape, options_.row_factor);
    return {.shape = shape,
            .hidden_size = options_.hidden_size,
            .ffn_hidden_size = options_.own_ffn(),
            .panels = options_.pieces.combine,
            .dtype = dtype};
}

int64_t TeamExperts::rows_per_wave(int64_t tokens) const {
    return sizes(tokens, DType::fp32).shape.budget;
}

Experts::Saved TeamExperts::saved_views(SavedViews& views) const {
    const int64_t rows = rows_per_wave(views.costly.own());
    return {.in = views.cheap.rows(rows, options_.hidden_size),
            .gate_up = views.costly.rows(rows, 2 * options_.own_ffn()),
            .act = views.cheap.rows(rows, options_.own_ffn())};
}

TeamRoutes TeamExperts::routes_views(TokenViews& views) const {
    const int64_t rows = 2 * options_.ranks * views.own();
    const Tensor numbers = views.numbers(rows * options_.per_token);
    return {.chosen = {numbers.data, rows, options_.per_token, numbers.dtype},
            .lists = views.numbers(most_list_numbers(sizes(views.own(), DType::fp32).shape))};
}

Experts::Gradients TeamExperts::gradient_views(TokenViews& views) const {
    const int64_t rows = rows_per_wave(views.own());
    return {.out = views.rows(rows, options_.hidden_size),
            .gate_up = views.rows(rows, 2 * options_.own_ffn())};
}

TeamMemory TeamExperts::memory(Views& views, int64_t tokens, DType dtype) const {
    return {views, sizes(tokens, dtype)};
}

void TeamExperts::make_inside(const Pass& of, const PlacedWave& wave,
                              const Meanwhile& meanwhile) const {
    const Experts::Saved& saved = of.saved;
    dispatch_tokens(of.team(wave, options_.name), of.x, meanwhile, saved.in,
                    [&](std::span<const RowRange> rows) {
                        const PartOfRows part = of.products();
                        of.op().grouped_linear_forward(of.pass.ctx, saved.in,
                                                       weights_.gate_up->weight, rows, 0,
                                                       saved.gate_up);
                    });
    of.op().gated_forward(of.pass.ctx, options_.activation, rows_in(wave, saved.gate_up),
                          rows_in(wave, saved.act));
}

void TeamExperts::forward(const StagePass& pass, const TeamMemory& memory, ConstTensor x,
                          const ExpertRows& chosen, const TeamRoutes& routes,
                          const Experts::Saved& saved, ConstTensor residual, Tensor out,
                          const Meanwhile& meanwhile) const {
    gather_routes(pass, chosen.choice, chosen.weights, routes.chosen, options_.name);
    const TeamSizes of_team = sizes(x.rows, x.dtype);
    Kept& kept = kept_->keep(routes.chosen, Kept(pass, of_team.shape, routes));
    const Pass of{.pass = pass,
                  .sizes = of_team,
                  .kept = kept,
                  .memory = memory,
                  .dy = {},
                  .x = x,
                  .routes = routes,
                  .saved = saved};
    const int waves = out ? kept.waves : 1;
    for (int i = 1; i <= waves; ++i) {
        const int number = i % waves;  // 0 last: the backward needs it
        const PlacedWave wave = of.place(number);
        if (number == 0) kept.keep_first(wave);
        make_inside(of, wave, i == 1 ? meanwhile : Meanwhile());
        if (!out) return;
        const auto make = [&](RowRange columns, Tensor panel) {
            const PartOfRows part = of.products();
            pass.op().grouped_linear_forward(pass.ctx, rows_in(wave, saved.act),
                                             weights_.down->weight, wave.rows, columns.first,
                                             panel);
        };
        combine_at_home(of.team(wave, options_.name), make,
                        {.weights = of.weights(wave),
                         .residual = i == 1 ? residual : ConstTensor(out),
                         .out = out},
                        {});
    }
}

void TeamExperts::recompute(const StagePass& pass, const TeamMemory& memory, ConstTensor x,
                            const TeamRoutes& routes, const Experts::Saved& saved) const {
    const Pass of = after_forward(pass, memory, {}, x, routes, saved);
    const PlacedWave& wave = of.kept.first;
    dispatch_tokens(of.team(wave, options_.name), x, {}, saved.in, {});
    pass.op().gated_forward(pass.ctx, options_.activation, rows_in(wave, saved.gate_up),
                            rows_in(wave, saved.act));
}

void TeamExperts::make_gradients(const Pass& of, const PlacedWave& wave,
                                 const Meanwhile& meanwhile) const {
    Context& ctx = of.pass.ctx;
    const kernels::Operators& op = of.op();
    const Tensor dout = of.gradients->out;
    const Tensor dact(of.memory.rows.data, dout.rows, options_.own_ffn(), dout.dtype);
    dispatch_tokens(
        of.team(wave, options_.name), of.dy, meanwhile, dout, [&](std::span<const RowRange> rows) {
            const PartOfRows part = of.products();
            op.grouped_linear_backward_input(ctx, dout, weights_.down->weight, rows, dact);
        });
    const Tensor weights = of.weights(wave);
    const Tensor dweights = of.memory.dweights.row_range(0, wave.copy_count());
    op.set_zero(ctx, bytes_of<std::byte>(dweights));  // of other members' experts
    // <dy, W act> = <W^T dy, act>: the experts' output need not be kept.
    op.combine_backward_weights(ctx, rows_in(wave, dact), rows_in(wave, of.saved.act),
                                wave.slot_of_row, dweights);
    for (const Tensor& gradient : {dact, dout}) {
        const Tensor rows = rows_in(wave, gradient);
        op.scale_rows(ctx, rows, wave.slot_of_row, weights, rows);
    }
    op.gated_backward(ctx, options_.activation, rows_in(wave, dact),
                      rows_in(wave, of.saved.gate_up), rows_in(wave, of.gradients->gate_up));
}

void TeamExperts::add_weight_gradients(const Pass& of, const PlacedWave& wave,
                                       bool accumulate) const {
    Context& ctx = of.pass.ctx;
    if (weights_.down->gradient) {
        of.op().grouped_linear_backward_weight(ctx, of.gradients->out, of.saved.act, wave.rows,
                                               weights_.down->gradient, accumulate);
    }
    if (weights_.gate_up->gradient) {
        of.op().grouped_linear_backward_weight(ctx, of.gradients->gate_up, of.saved.in, wave.rows,
                                               weights_.gate_up->gradient, accumulate);
    }
}

TeamExperts::Pass TeamExperts::after_forward(const StagePass& pass, const TeamMemory& memory,
                                             ConstTensor dy, ConstTensor x,
                                             const TeamRoutes& routes, const Experts::Saved& saved,
                                             const Experts::Gradients* gradients) const {
    return {.pass = pass,
            .sizes = sizes(x.rows, x.dtype),
            .kept = kept_->find(routes.chosen),
            .memory = memory,
            .dy = dy,
            .x = x,
            .routes = routes,
            .saved = saved,
            .gradients = gradients};
}

void TeamExperts::backward_input(const StagePass& pass, const TeamMemory& memory, ConstTensor dy,
                                 ConstTensor x, const TeamRoutes& routes,
                                 const Experts::Saved& saved, const Experts::Gradients& gradients,
                                 Tensor dweights, Tensor dx, const Meanwhile& meanwhile) const {
    const Pass of = after_forward(pass, memory, dy, x, routes, saved, &gradients);
    const int waves = of.kept.waves;
    for (int i = 0; i < waves; ++i) {
        const PlacedWave wave = i == 0 ? of.kept.first : of.place(i);
        if (i > 0) make_inside(of, wave, {});
        make_gradients(of, wave, i == 0 ? meanwhile : Meanwhile());
        const auto make = [&](RowRange columns, Tensor panel) {
            const PartOfRows part = of.products();
            pass.op().grouped_linear_backward_input(
                pass.ctx, rows_in(wave, gradients.gate_up),
                weights_.gate_up->weight.column_range(columns.first, columns.size()), wave.rows,
                panel);
        };
        Meanwhile weight_gradients;
        if (pass.weight_gradients.with_input) {
            weight_gradients = [&] {
                add_weight_gradients(of, wave, pass.weight_gradients.accumulate || i > 0);
            };
        }
        combine_at_home(of.team(wave, options_.name), make,
                        {.residual = i == 0 ? ConstTensor() : ConstTensor(dx),
                         .out = dx,
                         .dweights = dweights,
                         .accumulate = i > 0},
                        weight_gradients);
    }
    if (waves == 1 || pass.weight_gradients.with_input) return;
    // W expects wave 0 in memory.
    const PlacedWave wave = of.place(0);
    make_inside(of, wave, {});
    make_gradients(of, wave, {});
}

void TeamExperts::backward_weight(const StagePass& pass, const TeamMemory& memory, ConstTensor dy,
                                  ConstTensor x, const TeamRoutes& routes,
                                  const Experts::Saved& saved,
                                  const Experts::Gradients& gradients) const {
    if (pass.weight_gradients.with_input) return;
    if (!weights_.down->gradient && !weights_.gate_up->gradient) return;
    const Pass of = after_forward(pass, memory, dy, x, routes, saved, &gradients);
    for (int i = 0; i < of.kept.waves; ++i) {
        const PlacedWave wave = i == 0 ? of.kept.first : of.place(i);
        if (i > 0) {
            make_inside(of, wave, {});
            make_gradients(of, wave, {});
        }
        add_weight_gradients(of, wave, pass.weight_gradients.accumulate || i > 0);
    }
}

}  // namespace vocabpipe

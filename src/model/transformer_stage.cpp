// SPDX-License-Identifier: Apache-2.0
// All passes walk the same list: embedded tokens, layers, final norm; F and R forwards, the others
// backwards. Each gives every block a StagePass with the memory and the pieces of rows that concern
// it. B runs I and W of one layer before the next, so two boundary gradients suffice; I keeps the
// gradient of every layer's output for W.
#include "src/model/transformer_stage.hpp"

#include "src/model/blocks/layer_options.hpp"
#include "src/model/blocks/tensor_team.hpp"
#include "src/model/check_context_parallel.hpp"
#include "src/model/check_expert_parallel.hpp"
#include "src/model/check_tensor_parallel.hpp"
#include "src/model/parameters.hpp"
#include "src/model/views.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/tile_link.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace vocabpipe {

std::vector<ParameterRows> stage_parameters(const ModelConfig& config, const StageLayers& layers) {
    const ModelParameters model = model_parameters(config);
    std::vector<ParameterRows> rows;
    const auto add = [&](const ParameterRange& range, int layer) {
        for (int id = range.first; id < range.end; ++id) {
            rows.push_back({.id = id, .layer = layer});
        }
    };
    for (int layer = layers.first; layer < layers.first + layers.count; ++layer) {
        if (layers.depth_norm) {
            const ModelParameters::Depth& depth =
                model.depths[static_cast<size_t>(layer - config.num_layers)];
            add(depth.layer, layer);
            add(depth.norm, layer);
            continue;
        }
        add(model.layers[static_cast<size_t>(layer)], layer);
    }
    if (layers.embedding) add(model.positions, ParameterRows::kNoLayer);
    if (layers.final_norm) add(model.final_norm, config.num_layers);
    for (int depth = 0; depth < layers.depths; ++depth) {
        const int layer = config.num_layers + depth;
        const ModelParameters::Depth& of = model.depths[static_cast<size_t>(depth)];
        for (const ParameterRange& range : {of.projection, of.layer, of.norm}) add(range, layer);
    }
    return rows;
}

namespace {

/// Tokens of a microbatch of sequences of `seq_length` tokens. Throws UsageError for a stage that
/// its ranks cannot share.
TokenCounts checked_counts(const ModelConfig& config, const StageOptions& options,
                           int64_t seq_length) {
    const int64_t all = options.sequences * seq_length / options.context.ranks;
    const int ranks = options.tensor.ranks;
    check_expert_parallel(config, options.expert.ranks, options.expert.expert_tensor);
    check_context_parallel(config, options.context.ranks, options.context_exchange.form, ranks);
    if (options.cache != nullptr) {
        check_tensor_parallel(config, ranks, ranks);
        return {.own = all, .all = all};
    }
    check_tensor_parallel(config, ranks, all);
    return {.own = all / ranks, .all = all};
}

}  // namespace

TransformerStage::TransformerStage(const ModelConfig& config, const StageOptions& options,
                                   const kernels::Operators& operators,
                                   std::span<Parameter> parameters, const RotaryTables* rotary)
    : options_(options),
      hidden_size_(config.hidden_size),
      parameters_(parameters),
      rotary_(rotary) {
    static_cast<void>(checked_counts(config, options, config.seq_length));  // before its layers
    const LayerTeams teams{.context = options.context.ranks,
                           .context_exchange = options.context_exchange,
                           .tensor = options.tensor.ranks,
                           .expert = options.expert.ranks,
                           .expert_tensor = options.expert.expert_tensor,
                           .row_factor = options.moe_row_factor,
                           .expert_pieces = options.expert_pieces,
                           .all_tokens = options.cache != nullptr};
    // In the order of stage_parameters().
    HeldParameters held(parameters);
    for (int i = 0; i < options.layers.count; ++i) {
        layers_.emplace_back(config, options.layers.first + i, teams, held);
    }
    if (options.layers.embedding) embedded_tokens_.emplace(embedded_tokens_options(config), held);
    if (options.layers.final_norm) final_norm_.emplace(final_norm_options(config), held);
    if (options.layers.depth_norm) {
        final_norm_.emplace(depth_norm_options(config, options.layers.first - config.num_layers),
                            held);
    }

    add_length(config, config.seq_length, operators);
    for (const int64_t length : options.shorter_lengths) add_length(config, length, operators);
}

void TransformerStage::add_length(const ModelConfig& config, int64_t seq_length,
                                  const kernels::Operators& operators) {
    const ContextCut cut(seq_length, options_.context.rank, options_.context.ranks);
    const TokenCounts tokens = checked_counts(config, options_, seq_length);
    const int ranks = options_.tensor.ranks;
    std::vector<const ModelLayer*> layers;
    for (const ModelLayer& layer : layers_) layers.push_back(&layer);
    lengths_.push_back(
        {.cut = cut,
         .tokens = tokens,
         .tiles =
             TileMap::even(largest_part(tokens.all, ranks) * ranks, ranks, options_.tensor_pieces),
         .memory = StageMemory({.hidden_size = config.hidden_size,
                                .embeds = options_.layers.embedding,
                                .generates = options_.cache != nullptr,
                                .recompute = options_.recompute,
                                .expert = options_.expert.ranks},
                               std::move(layers), final_norm_ ? &*final_norm_ : nullptr,
                               {.operators = operators,
                                .sequences = options_.sequences,
                                .seq_length = cut.own_length(),
                                .dtype = config.dtype,
                                .threads = options_.threads,
                                .context = options_.context.ranks,
                                .tensor = ranks})});
}

const TransformerStage::OfLength& TransformerStage::of(const Microbatch& microbatch) const {
    if (lengths_.size() == 1) return lengths_.front();  // in generation also for fewer tokens
    for (const OfLength& length : lengths_) {
        if (length.cut.own_length() == microbatch.seq_length) return length;
    }
    throw Error(ExitCode::failed,
                "stage: microbatch " + std::to_string(microbatch.index) + " has sequences of " +
                    std::to_string(microbatch.seq_length) +
                    " tokens, a length that ModelPartition::shorter_lengths does not name");
}

TileLink* TransformerStage::link_to(Context& ctx, Axis axis, TeamPlace place) {
    if (place.ranks == 1) return nullptr;
    TileLink* const link = ctx.link(axis);
    if (link == nullptr || link->size() != place.ranks || link->rank() != place.rank) {
        throw Error(ExitCode::failed,
                    "stage of " + std::to_string(place.ranks) + " " + std::string(to_string(axis)) +
                        " ranks: the pass's link is not that of rank " +
                        std::to_string(place.rank) + " among them; see Context::set_link()");
    }
    return link;
}

TensorTeam TransformerStage::team(Context& ctx, const Microbatch& microbatch) const {
    TileLink* const link = link_to(ctx, Axis::tensor, options_.tensor);
    if (link == nullptr) return {};
    return {.link = link, .tiles = &of(microbatch).tiles};
}

StagePass TransformerStage::begin_pass(Context& ctx, const Microbatch& microbatch,
                                       const OfLength& length) const {
    ContextTeam context;
    if (TileLink* const link = link_to(ctx, Axis::context, options_.context)) {
        context = {.link = link, .cut = &length.cut};
    }
    return {.ctx = ctx,
            .microbatch = microbatch,
            .rotary = rotary_,
            .recompute = options_.recompute,
            .cached = {.keys_values = {},
                       .count = options_.cache != nullptr ? options_.cache->tokens() : 0},
            .team = team(ctx, microbatch),
            .context = context,
            .experts = link_to(ctx, Axis::expert, options_.expert)};
}

StagePass TransformerStage::weight_pass(const StagePass& pass, size_t i) const {
    StagePass of_layer = pass;
    if (options_.router_sums != nullptr) {
        of_layer.router_sums =
            options_.router_sums->of(options_.layers.first + static_cast<int>(i));
    }
    return of_layer;
}

ConstTensor TransformerStage::input(const Saved& saved, size_t i, ConstTensor x) {
    return saved.inputs[i] ? ConstTensor(saved.inputs[i]) : x;
}

void TransformerStage::run(const StagePass& pass, ConstTensor x, Tensor y,
                           const Saved& saved) const {
    const size_t count = layers_.size();
    const auto input_of = [&](size_t i) {
        return i == count && !final_norm_ ? y : saved.inputs[i];
    };
    if (embedded_tokens_ || count == 0) input_pieces(pass.ctx, x.rows).all();
    if (embedded_tokens_ && input_of(0)) {
        embedded_tokens_->forward(pass, x, input_of(0));
        x = input_of(0);
    } else if (count == 0 && !final_norm_ && y) {
        pass.op().convert(pass.ctx, x, y);
    }
    const auto final_norm = [&, in = count == 0 ? x : ConstTensor(input_of(count))](RowRange rows) {
        const Tensor out =  // scratch if only statistics are needed
            y ? y : pass.scratch.own_rows(in.rows, hidden_size_);
        final_norm_->forward(pass, rows_of(in, rows), {}, rows_of(out, rows),
                             rows_of(saved.final_statistics, rows));
    };
    const RowPieces output = output_pieces(pass.ctx, x.rows);
    for (size_t i = 0; i < count; ++i) {
        if (i > 0) pass.ctx.poll();
        StagePass of_layer = pass;
        if (i == 0) of_layer.input = input_pieces(pass.ctx, x.rows);
        if (i + 1 == count && output) {
            of_layer.output = final_norm_ ? output.finished_by(final_norm) : output;
        }
        if (options_.cache != nullptr) {
            of_layer.cached.keys_values =
                options_.cache->layer(options_.layers.first + static_cast<int>(i));
        }
        layers_[i].forward(of_layer, x, saved.layers[i], input_of(i + 1));
        x = input_of(i + 1);
    }
    if (final_norm_ && (count == 0 || !output)) final_norm(kAllRows);
}

void TransformerStage::run_on_all_rows(StagePass pass, ConstTensor x, Tensor y, const Saved& saved,
                                       Tensor all_y) const {
    const OfLength& length = lengths_.front();
    const int64_t all = length.tokens.all;
    Microbatch microbatch = pass.microbatch;
    microbatch.seq_length = all;
    const ConstTensor all_x = gather_rows(pass, x, "the stage");
    StagePass whole{.ctx = pass.ctx,
                    .microbatch = microbatch,
                    .rotary = pass.rotary,
                    .recompute = pass.recompute,
                    .scratch = pass.scratch,
                    .cached = pass.cached,
                    .team = {.link = pass.team.link},
                    .experts = pass.experts};
    run(whole, all_x.row_range(0, all), all_y, saved);
    // Padding rows come last; a rank may have no other rows.
    const int64_t first = std::min(length.tiles.rows(options_.tensor.rank).first, all);
    const int64_t count = std::min(y.rows, all - first);
    pass.op().convert(pass.ctx, ConstTensor(all_y).row_range(first, count), y.row_range(0, count));
    const Tensor added = y.row_range(count, y.rows - count);
    pass.op().set_zero(pass.ctx, bytes_of<std::byte>(added));
}

void TransformerStage::forward(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y,
                               Activations activations, Bytes workspace) {
    const OfLength& length = of(microbatch);
    Views views(workspace);
    StagePass pass = begin_pass(ctx, microbatch, length);
    pass.scratch = length.memory.scratch_views(views);
    if (generates_in_team()) {
        run_on_all_rows(pass, x, y, length.memory.saved_views(activations),
                        length.memory.whole_output_view(views));
    } else {
        run(pass, x, y, length.memory.saved_views(activations));
    }
}

void TransformerStage::recompute(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                                 Activations activations, Bytes workspace) {
    if (options_.recompute == Recompute::none) return;
    if (options_.recompute == Recompute::full) {
        forward(ctx, microbatch, x, {}, activations, workspace);
        return;
    }
    const OfLength& length = of(microbatch);
    const Saved saved = length.memory.saved_views(activations);
    Views views(workspace);
    StagePass pass = begin_pass(ctx, microbatch, length);
    pass.scratch = length.memory.scratch_views(views);
    for (size_t i = 0; i < layers_.size(); ++i) {
        if (i > 0) ctx.poll();
        layers_[i].recompute(pass, input(saved, i, x), saved.layers[i]);
    }
}

void TransformerStage::backward(Context& ctx, const Microbatch& microbatch, ConstTensor dy,
                                ConstTensor x, Activations activations, Tensor dx, Bytes workspace,
                                bool accumulate) {
    const size_t count = layers_.size();
    const OfLength& length = of(microbatch);
    const Saved saved = length.memory.saved_views(activations);
    Views views(workspace);
    StageMemory::Backward memory = length.memory.backward_views(views);
    StagePass pass = begin_pass(ctx, microbatch, length);
    pass.scratch = memory.scratch;
    pass.weight_gradients = {.accumulate = accumulate, .with_input = true};
    pass.adds_router_sums = adds_router_sums(accumulate);

    const RowPieces pieces = input_pieces(ctx, x.rows);
    if (final_norm_ || count == 0) pieces.all();
    if (final_norm_) {
        const Tensor out = count == 0 ? dx : memory.next;
        final_norm_->backward_input(pass, dy, input(saved, count, x), saved.final_statistics, {},
                                    out);
        dy = out;
        std::swap(memory.next, memory.other);
    } else if (count == 0) {
        pass.op().convert(ctx, dy, dx);
    }
    for (size_t i = count; i-- > 0;) {
        if (i + 1 < count) ctx.poll();
        const Tensor out = i == 0 ? dx : memory.next;
        const ConstTensor in = input(saved, i, x);
        StagePass of_layer = pass;
        if (i + 1 == count) of_layer.input = pieces;
        layers_[i].backward_input(of_layer, dy, in, saved.layers[i], memory.layers[i], out);
        if (i == 0 && !embedded_tokens_) output_pieces(ctx, x.rows).all();
        layers_[i].backward_weight(weight_pass(pass, i), dy, in, saved.layers[i], memory.layers[i]);
        dy = out;
        std::swap(memory.next, memory.other);
    }
    if (embedded_tokens_) {
        embedded_tokens_->backward_weight(pass, dx);
        embedded_tokens_->backward_input(pass, dx);
    }
}

void TransformerStage::backward_input(Context& ctx, const Microbatch& microbatch, ConstTensor dy,
                                      ConstTensor x, Activations activations, Tensor dx,
                                      Bytes for_weight, Bytes workspace) {
    const size_t count = layers_.size();
    const OfLength& length = of(microbatch);
    const Saved saved = length.memory.saved_views(activations);
    Views weight_memory(for_weight);
    const ForWeight left = length.memory.weight_views(weight_memory);
    Views views(workspace);
    StagePass pass = begin_pass(ctx, microbatch, length);
    pass.scratch = length.memory.scratch_views(views);

    const Tensor last = count == 0 ? dx : left.layer_dy.back();
    const auto keep = [&](RowRange rows) {
        pass.op().convert(ctx, rows_of(dy, rows), rows_of(left.stage_dy, rows));
        if (!final_norm_) pass.op().convert(ctx, rows_of(dy, rows), rows_of(last, rows));
    };
    const RowPieces pieces = input_pieces(ctx, x.rows);
    const bool by_pieces = pieces && !final_norm_ && count > 0;
    if (!by_pieces) pieces.each(keep);
    if (final_norm_) {
        final_norm_->backward_input(pass, dy, input(saved, count, x), saved.final_statistics, {},
                                    last);
    }
    for (size_t i = count; i-- > 0;) {
        if (i + 1 < count) ctx.poll();
        StagePass of_layer = pass;
        if (i + 1 == count && by_pieces) of_layer.input = pieces.prepared_by(keep);
        if (i == 0 && !embedded_tokens_) of_layer.output = output_pieces(ctx, x.rows);
        layers_[i].backward_input(of_layer, left.layer_dy[i], input(saved, i, x), saved.layers[i],
                                  left.layers[i], i == 0 ? dx : left.layer_dy[i - 1]);
    }
    pass.op().convert(ctx, dx, left.stage_dx);
    if (embedded_tokens_) embedded_tokens_->backward_input(pass, dx);
}

void TransformerStage::backward_weight(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                                       Activations activations, Bytes for_weight, Bytes workspace,
                                       bool accumulate) {
    const size_t count = layers_.size();
    const OfLength& length = of(microbatch);
    const Saved saved = length.memory.saved_views(activations);
    Views weight_memory(for_weight);
    const ForWeight left = length.memory.weight_views(weight_memory);
    Views views(workspace);
    StagePass pass = begin_pass(ctx, microbatch, length);
    pass.scratch = length.memory.weight_scratch_views(views);
    pass.weight_gradients.accumulate = accumulate;
    pass.adds_router_sums = adds_router_sums(accumulate);

    if (final_norm_) {
        final_norm_->backward_weight(pass, left.stage_dy, input(saved, count, x),
                                     saved.final_statistics);
    }
    for (size_t i = count; i-- > 0;) {
        if (i + 1 < count) ctx.poll();
        layers_[i].backward_weight(weight_pass(pass, i), left.layer_dy[i], input(saved, i, x),
                                   saved.layers[i], left.layers[i]);
    }
    if (embedded_tokens_) embedded_tokens_->backward_weight(pass, left.stage_dx);
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
// A depth is a projection and a stage of one layer with its norm, so that recomputation and the
// split of a backward into I and W are those of TransformerStage.
#include "src/model/predicting_stage.hpp"

#include "src/model/blocks/layer_options.hpp"
#include "src/model/blocks/tensor_team.hpp"
#include "src/model/parameters.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

/// The options of the stage of a depth, k from 0.
StageOptions depth_options(const ModelConfig& config, StageOptions options, int depth) {
    options.layers = {.first = config.num_layers + depth, .count = 1, .depth_norm = true};
    options.streams = false;
    return options;
}

/// Parameters one after the other.
class Taken {
public:
    explicit Taken(std::span<Parameter> all) : rest_(all) {}
    /// Empty if there are none at all: for a stage that only counts.
    std::span<Parameter> take(size_t count) {
        const std::span<Parameter> part = rest_.first(std::min(count, rest_.size()));
        rest_ = rest_.subspan(part.size());
        return part;
    }

private:
    std::span<Parameter> rest_;
};

/// The options of the stage of the model's own layers.
StageOptions without_depths(StageOptions options) {
    options.layers.depths = 0;
    options.streams = false;
    return options;
}

}  // namespace

PredictingStage::PredictingStage(const ModelConfig& config, const StageOptions& options,
                                 const kernels::Operators& operators,
                                 std::span<Parameter> parameters, const RotaryTables* rotary)
    : main_(
          config, without_depths(options), operators,
          parameters.first(std::min(
              parameters.size(), stage_parameters(config, without_depths(options).layers).size())),
          rotary),
      parameters_(parameters),
      recompute_(options.recompute),
      tokens_{.own = options.sequences * config.seq_length / options.tensor.ranks,
              .all = options.sequences * config.seq_length},
      first_row_(tokens_.own * options.tensor.rank) {
    Taken rest(parameters);
    rest.take(main_.parameters().size());
    for (int depth = 0; depth < options.layers.depths; ++depth) {
        const StageOptions of_layer = depth_options(config, options, depth);
        ParameterCount projected;
        static_cast<void>(DepthProjection(depth_projection_options(config, depth), projected));
        HeldParameters held(rest.take(projected.all().size()));
        depths_.push_back(
            {.projection = {depth_projection_options(config, depth), held}, .layer = nullptr});
        depths_.back().layer = std::make_unique<TransformerStage>(
            config, of_layer, operators,
            rest.take(stage_parameters(config, of_layer.layers).size()), rotary);
    }
    memory_.emplace(DepthMemoryOptions{.depths = options.layers.depths,
                                       .hidden_size = config.hidden_size,
                                       .tokens = tokens_,
                                       .dtype = config.dtype,
                                       .recompute = recompute_,
                                       .main = main_.bytes(),
                                       .layer = depths_.front().layer->bytes()},
                    depths_.front().projection);
}

// --- embedded tokens -----------------------------------------------------------------------------

StagePass PredictingStage::team_pass(Context& ctx, const Microbatch& microbatch,
                                     Bytes workspace) const {
    Views views(workspace);
    return {.ctx = ctx,
            .microbatch = microbatch,
            .scratch = memory_->team_scratch(views),
            .team = main_.team(ctx, microbatch)};
}

template <typename Work>
void PredictingStage::each_sequence(const Microbatch& microbatch, int64_t k,
                                    const Work& work) const {
    const int64_t length = microbatch.seq_length;
    const int64_t end_row = first_row_ + tokens_.own;
    for (int64_t begin = 0; begin < microbatch.size(); begin += length) {
        const int64_t first = std::max(begin, first_row_);
        const int64_t end = std::min(begin + length, end_row);
        if (first >= end) continue;
        work(first, std::clamp(begin + length - k, first, end), end);
    }
}

void PredictingStage::take_later(Context& ctx, const Microbatch& microbatch, ConstTensor embedded,
                                 int64_t k, Tensor out) const {
    const kernels::Operators& op = ctx.operators();
    each_sequence(microbatch, k, [&](int64_t first, int64_t known, int64_t end) {
        if (known > first) {
            op.convert(ctx, embedded.row_range(first + k, known - first),
                       out.row_range(first - first_row_, known - first));
        }
        const Tensor unknown = out.row_range(known - first_row_, end - known);
        op.set_zero(ctx, bytes_of<std::byte>(unknown));
    });
}

void PredictingStage::add_later(Context& ctx, const Microbatch& microbatch, ConstTensor gradient,
                                int64_t k, Tensor embedded) const {
    each_sequence(microbatch, k, [&](int64_t first, int64_t known, int64_t) {
        if (known == first) return;
        const Tensor to = embedded.row_range(first + k, known - first);
        ctx.operators().add(ctx, to, gradient.row_range(first - first_row_, known - first), to);
    });
}

void PredictingStage::take_embedded(Context& ctx, const Microbatch& microbatch,
                                    ConstTensor embedded, const std::vector<Saved>& saved,
                                    Bytes workspace) const {
    const ConstTensor all =
        gather_rows(team_pass(ctx, microbatch, workspace), embedded, "the embedded tokens");
    for (size_t i = 0; i < saved.size(); ++i) {
        take_later(ctx, microbatch, all, static_cast<int64_t>(i) + 1, saved[i].projection.embedded);
    }
}

// --- passes --------------------------------------------------------------------------------------

void PredictingStage::begin_step(int microbatches) {
    main_.begin_step(microbatches);
    for (Depth& depth : depths_) depth.layer->begin_step(microbatches);
}

void PredictingStage::forward(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y,
                              Activations activations, Bytes workspace) {
    if (!activations.embedded) {
        main_.forward(ctx, microbatch, x, y, activations, workspace);
        return;
    }
    Activations main;
    const std::vector<Saved> saved = memory_->saved_views(activations, main);
    main_.forward(ctx, microbatch, x, y.row_range(0, x.rows), main, workspace);
    take_embedded(ctx, microbatch, activations.embedded, saved, workspace);
    const StagePass pass{.ctx = ctx, .microbatch = microbatch};
    for (size_t i = 0; i < depths_.size(); ++i) {
        ctx.poll();
        const auto k = static_cast<int64_t>(i) + 1;
        const DepthProjection::Saved& in = saved[i].projection;
        ctx.operators().convert(ctx, y.row_range((k - 1) * x.rows, x.rows), in.hidden);
        depths_[i].projection.forward(pass, in, saved[i].x);
        depths_[i].layer->forward(ctx, microbatch, saved[i].x, y.row_range(k * x.rows, x.rows),
                                  saved[i].layer, workspace);
    }
}

void PredictingStage::recompute(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                                Activations activations, Bytes workspace) {
    Activations main;
    const std::vector<Saved> saved = memory_->saved_views(activations, main);
    main_.recompute(ctx, microbatch, x, main, workspace);
    if (recompute_ == Recompute::none) return;
    const StagePass pass{.ctx = ctx, .microbatch = microbatch};
    for (size_t i = 0; i < depths_.size(); ++i) {
        ctx.poll();
        if (recompute_ == Recompute::full) {
            depths_[i].projection.forward(pass, saved[i].projection, saved[i].x);
        } else {
            depths_[i].projection.normalize(pass, saved[i].projection);
        }
        depths_[i].layer->recompute(ctx, microbatch, saved[i].x, saved[i].layer, workspace);
    }
}

void PredictingStage::backward_depths(Context& ctx, const Microbatch& microbatch, ConstTensor dy,
                                      const std::vector<Saved>& saved,
                                      const std::vector<ForWeight>& left,
                                      const Gradients& gradients, Tensor embedded_gradient,
                                      Bytes workspace, const WeightGradients& weights) {
    const kernels::Operators& op = ctx.operators();
    const StagePass pass{.ctx = ctx, .microbatch = microbatch, .weight_gradients = weights};
    const int64_t rows = tokens_.own;
    const Tensor all = gradients.all_embedded ? gradients.all_embedded : embedded_gradient;
    if (embedded_gradient) op.set_zero(ctx, bytes_of<std::byte>(all));
    op.convert(ctx, dy.row_range(std::ssize(depths_) * rows, rows), gradients.hidden);
    for (size_t i = depths_.size(); i-- > 0;) {
        const auto k = static_cast<int64_t>(i) + 1;
        const ForWeight& of = left[i];
        if (weights.with_input) {
            depths_[i].layer->backward(ctx, microbatch, gradients.hidden, saved[i].x,
                                       saved[i].layer, of.dx, workspace, weights.accumulate);
        } else {
            depths_[i].layer->backward_input(ctx, microbatch, gradients.hidden, saved[i].x,
                                             saved[i].layer, of.dx, of.layer, workspace);
        }
        depths_[i].projection.backward_input(pass, of.dx, saved[i].projection, of.projection,
                                             gradients.embedded, dy.row_range(i * rows, rows),
                                             gradients.hidden);
        if (weights.with_input) {
            depths_[i].projection.backward_weight(pass, of.dx, saved[i].projection, of.projection);
        }
        if (embedded_gradient) {
            add_later(ctx, microbatch, gradients.embedded, k, all);
        }
        ctx.poll();
    }
    if (!embedded_gradient || !gradients.all_embedded) return;
    sum_rows(
        team_pass(ctx, microbatch, workspace), "the embedded tokens",
        [&](RowRange of, Tensor partial) { op.convert(ctx, rows_of(all, of), partial); }, {},
        embedded_gradient);
}

void PredictingStage::backward(Context& ctx, const Microbatch& microbatch, ConstTensor dy,
                               ConstTensor x, Activations activations, Tensor dx, Bytes workspace,
                               bool accumulate) {
    Activations main;
    const std::vector<Saved> saved = memory_->saved_views(activations, main);
    Views views(workspace);
    const Gradients gradients = memory_->gradient_views(views);
    const ForWeight shared = memory_->backward_view(views);
    const Bytes rest = workspace.subspan(static_cast<size_t>(views.used()));
    backward_depths(ctx, microbatch, dy, saved, std::vector<ForWeight>(depths_.size(), shared),
                    gradients, activations.embedded_gradient, rest,
                    {.accumulate = accumulate, .with_input = true});
    main_.backward(ctx, microbatch, gradients.hidden, x, main, dx, rest, accumulate);
}

void PredictingStage::backward_input(Context& ctx, const Microbatch& microbatch, ConstTensor dy,
                                     ConstTensor x, Activations activations, Tensor dx,
                                     Bytes for_weight, Bytes workspace) {
    Activations main;
    const std::vector<Saved> saved = memory_->saved_views(activations, main);
    Views weight_memory(for_weight);
    Bytes main_for_weight;
    const std::vector<ForWeight> left = memory_->weight_views(weight_memory, main_for_weight);
    Views views(workspace);
    const Gradients gradients = memory_->gradient_views(views);
    const Bytes rest = workspace.subspan(static_cast<size_t>(views.used()));
    backward_depths(ctx, microbatch, dy, saved, left, gradients, activations.embedded_gradient,
                    rest, {});
    main_.backward_input(ctx, microbatch, gradients.hidden, x, main, dx, main_for_weight, rest);
}

void PredictingStage::backward_weight(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                                      Activations activations, Bytes for_weight, Bytes workspace,
                                      bool accumulate) {
    Activations main;
    const std::vector<Saved> saved = memory_->saved_views(activations, main);
    Views weight_memory(for_weight);
    Bytes main_for_weight;
    const std::vector<ForWeight> left = memory_->weight_views(weight_memory, main_for_weight);
    const StagePass pass{
        .ctx = ctx, .microbatch = microbatch, .weight_gradients = {.accumulate = accumulate}};
    for (size_t i = depths_.size(); i-- > 0;) {
        depths_[i].layer->backward_weight(ctx, microbatch, saved[i].x, saved[i].layer,
                                          left[i].layer, workspace, accumulate);
        depths_[i].projection.backward_weight(pass, left[i].dx, saved[i].projection,
                                              left[i].projection);
        ctx.poll();
    }
    main_.backward_weight(ctx, microbatch, x, main, main_for_weight, workspace, accumulate);
}

}  // namespace vocabpipe

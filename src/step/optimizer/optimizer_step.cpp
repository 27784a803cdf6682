// SPDX-License-Identifier: Apache-2.0
// The end of a step on one rank. report() fills a block of fp64 sums: squared norms by parameter,
// loss, stop requests, routers. update() gets the blocks of all ranks and adds them up in the same
// order everywhere, so that all ranks scale, skip or stop alike.
#include "vocabpipe/optimizer_step.hpp"

#include "src/model/model_rank_internals.hpp"
#include "src/model/parameter_groups.hpp"
#include "src/model/router_sums.hpp"
#include "vocabpipe/operators.hpp"
#include "vocabpipe/router_options.hpp"
#include "vocabpipe/step_scalars.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace vocabpipe {

using kernels::StepScalars;

namespace {

/// A norm takes two kernels per tensor; see Context::poll().
constexpr size_t kTensorsBetweenPolls = 128;

std::span<float> floats(Tensor tensor) {
    return {tensor.as<float>(), static_cast<size_t>(tensor.size())};
}

}  // namespace

OptimizerStep::OptimizerStep(ModelRank& model, const Schedule& schedule, int rank,
                             OptimizerOptions options)
    : model_(model),
      // All ranks of a replica that have output rows have its loss.
      reports_loss_(model.output() != nullptr &&
                    schedule.output.owners().front() == model.mesh().pipeline_rank(rank) &&
                    model.mesh().place(rank).tensor == 0),
      options_(options),
      memory_(model.device().allocate(sizeof(StepScalars), "the optimizer's numbers of a step")),
      routers_(model.device().allocate(
          static_cast<uint64_t>(report_entries(model.config()).routers) * sizeof(double),
          "the sums of routers")),
      depths_(model.device().allocate(
          static_cast<uint64_t>(report_entries(model.config()).depths) * sizeof(double),
          "the losses of depths")),
      routed_layers_(routed_layers(model.config())) {
    size_t next = 0;  // parameters lie in the order of layers
    for (const Parameter& p : model.parameters()) {
        if (!p.correction_bias) continue;
        while (model.router_sums(routed_layers_[next]).empty()) ++next;
        correction_biases_.push_back({p.weight, next++});
    }
    for (const Parameter& p : model.parameters()) {
        if (!p.exp_avg) continue;            // a tied output weight: updated with the input weight
        if (p.master.size() == 0) continue;  // another rank updates it
        const ParameterSettings settings =
            parameter_settings(options.groups, p.name, p.weight_decay, options.weight_decay);
        tensors_.push_back({.master = floats(p.master),
                            .gradient = floats(p.owned_gradient),
                            .exp_avg = floats(p.exp_avg),
                            .exp_avg_sq = floats(p.exp_avg_sq),
                            .weight = p.weight.dtype == DType::fp32 ? Tensor() : p.owned_weight,
                            .weight_decay = settings.weight_decay,
                            .lr_multiplier = settings.lr_multiplier});
    }
}

OptimizerStep::~OptimizerStep() = default;

std::span<double> OptimizerStep::router_sums() const {
    return {reinterpret_cast<double*>(routers_.data()), routers_.size() / sizeof(double)};
}

template <typename T>
std::span<T> OptimizerStep::sums_of_layer(std::span<T> all, size_t routed_layer) const {
    const size_t each = all.size() / routed_layers_.size();
    return all.subspan(routed_layer * each, each);
}

StepScalars* OptimizerStep::scalars() const {
    return reinterpret_cast<StepScalars*>(memory_.data());
}

void OptimizerStep::begin_step(const StepStart& start) {
    const auto t = static_cast<double>(start.step);
    const StepScalars given{.lr = start.learning_rate,
                            .bias_correction1 = static_cast<float>(1 - std::pow(options_.beta1, t)),
                            .bias_correction2 = static_cast<float>(1 - std::pow(options_.beta2, t)),
                            .clip_grad = options_.clip_grad,
                            .counted_tokens = start.counted_tokens,
                            .stop_requested = start.stop_request};
    model_.device().upload(std::as_bytes(std::span(&given, 1)), memory_.data());
}

StepResult OptimizerStep::result() const {
    StepScalars found;
    model_.device().download(memory_.data(), std::as_writable_bytes(std::span(&found, 1)));
    return {.loss = found.loss,
            .grad_norm = found.grad_norm,
            .updated = found.update != 0,
            .stop_requests = found.stops,
            .routers = router_result(),
            .depth_losses = depth_losses()};
}

std::span<double> OptimizerStep::depth_sums() const {
    return {reinterpret_cast<double*>(depths_.data()), depths_.size() / sizeof(double)};
}

std::vector<double> OptimizerStep::depth_losses() const {
    std::vector<double> losses(depth_sums().size());
    if (losses.empty()) return losses;
    model_.device().download(depths_.data(), std::as_writable_bytes(std::span(losses)));
    for (double& loss : losses) loss /= double{model_.config().mtp_loss_weight()};
    return losses;
}

std::optional<RouterResult> OptimizerStep::router_result() const {
    if (routed_layers_.empty()) return std::nullopt;
    std::vector<double> sums(router_sums().size());
    model_.device().download(routers_.data(), std::as_writable_bytes(std::span(sums)));
    const auto layers = static_cast<double>(routed_layers_.size());
    const double ranks_of_microbatch = model_.mesh().size_of(Axis::context_tensor);
    RouterResult result;
    for (size_t i = 0; i < routed_layers_.size(); ++i) {
        const auto of = sums_of_layer(std::span<const double>(sums), i);
        const double microbatches = of[kernels::kRoutedMicrobatches];
        if (microbatches == 0) continue;  // a custom stage has no routers
        // Ranks that share a microbatch have loads and scores of all its tokens, but only a part of
        // the tokens each.
        result.aux_loss += of[kernels::kRouterBalance] / microbatches / layers /
                           (ranks_of_microbatch * ranks_of_microbatch);
        result.z_loss += of[kernels::kRouterZ] / microbatches / layers;
        const auto loads = of.subspan(kernels::kExpertLoads);
        const double mean =
            std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(loads.size());
        result.max_load = std::max(result.max_load, std::ranges::max(loads) / mean);
    }
    return result;
}

void OptimizerStep::reduce_tied(Context& ctx, Bytes received) {
    // E side + S side, in either order: addition commutes. A row that no token of the step has is
    // -0.0 on the E side, so that its sum has the S side's bits, whether two ranks add all rows or
    // one rank adds only the rows of its tokens.
    if (received.empty()) {
        model_.input()->reduce_tied(ctx);
        return;
    }
    Parameter& mine = model_.input() != nullptr ? model_.input()->parameters().front()
                                                : model_.output()->parameters().front();
    const ConstTensor other(received.data(), mine.gradient.rows, mine.gradient.cols, DType::fp32);
    ctx.operators().add(ctx, mine.gradient, other, mine.gradient);
}

void OptimizerStep::reduce_shared(Context& ctx, std::span<const SharedGradient> gradients) {
    const auto vector = [](Bytes memory) {
        return Tensor(memory.data(), 1, std::ssize(memory) / size_of(DType::fp32), DType::fp32);
    };
    const Tensor sum = vector(gradients.front().gradient);
    for (const SharedGradient& term : gradients.subspan(1)) {
        ctx.operators().add(ctx, sum, vector(term.gradient), sum);
    }
    for (const SharedGradient& other : gradients.subspan(1)) {
        if (other.own) ctx.operators().convert(ctx, sum, vector(other.gradient));
    }
}

void OptimizerStep::report(Context& ctx, Bytes mine) {
    const kernels::Operators& op = ctx.operators();
    op.set_zero(ctx, mine);
    auto* const sums = reinterpret_cast<double*>(mine.data());
    const std::vector<Parameter>& parameters = ModelRankInternals::store(model_).parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
        if (i > 0 && i % kTensorsBetweenPolls == 0) ctx.poll();
        if (parameters[i].counted_elsewhere || !parameters[i].gradient) continue;
        const Tensor gradient = parameters[i].owned_gradient;
        if (gradient.size() == 0) continue;
        op.sum_of_squares(ctx, gradient, sums + ModelRankInternals::store(model_).ids()[i]);
    }
    double* const loss = sums + report_entries(model_.config()).squares;
    if (reports_loss_) op.add_up(ctx, model_.output()->losses(), loss);
    for (const std::span<const double> losses : model_.stage_losses()) op.add_up(ctx, losses, loss);
    op.add_up(ctx, std::span(&scalars()->stop_requested, 1), loss + 1);
    const ReportEntries entries = report_entries(model_.config());
    if (reports_loss_) {
        const std::span<const double> of_depths = model_.output()->depth_losses();
        const size_t microbatches = model_.output()->losses().size();
        for (size_t depth = 0; depth * microbatches < of_depths.size(); ++depth) {
            op.add_up(ctx, of_depths.subspan(depth * microbatches, microbatches),
                      sums + entries.first_depth() + depth);
        }
    }
    for (size_t i = 0; i < routed_layers_.size(); ++i) {
        const std::span<const double> own = model_.router_sums(routed_layers_[i]);
        if (own.empty()) continue;
        const std::span<double> into(sums + entries.first_router() + i * own.size(), own.size());
        op.copy(ctx, std::as_bytes(own), std::as_writable_bytes(into));
    }
}

void OptimizerStep::update(Context& ctx, std::span<const std::byte> all) {
    const kernels::Operators& op = ctx.operators();
    const std::span<const double> reports(reinterpret_cast<const double*>(all.data()),
                                          all.size() / sizeof(double));
    const ReportEntries entries = report_entries(model_.config());
    op.finish_report(ctx, reports, entries.count(), entries.squares, scalars());
    op.adamw(ctx, tensors_,
             {.beta1 = options_.beta1, .beta2 = options_.beta2, .epsilon = options_.epsilon},
             scalars());
    op.sum_reports(ctx, reports, entries.count(), entries.first_depth(), depth_sums());
    if (entries.routers == 0) return;
    op.sum_reports(ctx, reports, entries.count(), entries.first_router(), router_sums());
    const float rate = model_.config().moe.bias_rate;
    if (rate == 0) return;
    for (const auto& [bias, layer] : correction_biases_) {
        const std::span<const double> loads =
            sums_of_layer(router_sums(), layer).subspan(kernels::kExpertLoads);
        op.update_correction_bias(ctx, loads, rate, scalars(), bias);
    }
}

}  // namespace vocabpipe

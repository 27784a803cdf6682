// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/optimizer_step.hpp"

#include "src/model/model_rank_internals.hpp"
#include "src/train/optimizer/parameter_groups.hpp"
#include "vocabpipe/operators.hpp"
#include "vocabpipe/step_scalars.hpp"

#include <cmath>
#include <vector>

namespace vocabpipe {

using kernels::StepScalars;

namespace {

/// Of a norm, with two kernels each: see Context::poll().
constexpr size_t kTensorsBetweenPolls = 128;

std::span<float> floats(Tensor tensor) {
    return {tensor.as<float>(), static_cast<size_t>(tensor.size())};
}

}  // namespace

OptimizerStep::OptimizerStep(ModelRank& model, const Schedule& schedule, int rank,
                             OptimizerOptions options)
    : model_(model),
      reports_loss_(schedule.output.owners().front() == model.mesh().pipeline_rank(rank)),
      options_(options),
      memory_(model.device().allocate(sizeof(StepScalars), "the optimizer's numbers of a step")) {
    for (const Parameter& p : model.parameters()) {
        if (!p.exp_avg) continue;            // a tied output weight: updated with the input weight
        if (p.master.size() == 0) continue;  // another replica updates it
        const ParameterSettings settings =
            parameter_settings(options.groups, p.name, p.weight_decay, options.weight_decay);
        tensors_.push_back(
            {.master = floats(p.master),
             .gradient = floats(p.owned.of(p.gradient)),
             .exp_avg = floats(p.exp_avg),
             .exp_avg_sq = floats(p.exp_avg_sq),
             .weight = p.weight.dtype == DType::fp32 ? Tensor() : p.owned.of(p.weight),
             .weight_decay = settings.weight_decay,
             .lr_multiplier = settings.lr_multiplier});
    }
}

OptimizerStep::~OptimizerStep() = default;

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
            .stop_requests = found.stops};
}

void OptimizerStep::reduce_tied(Context& ctx, Bytes received) {
    // E side + S side; the sum is the same on both ranks because addition commutes.
    Parameter& mine = model_.input() != nullptr ? model_.input()->parameters().front()
                                                : model_.output()->parameters().front();
    const ConstTensor other =
        received.empty()
            ? ConstTensor(model_.output()->parameters().front().gradient)
            : ConstTensor(received.data(), mine.gradient.rows, mine.gradient.cols, DType::fp32);
    ctx.operators().add(ctx, mine.gradient, other, mine.gradient);
}

void OptimizerStep::report(Context& ctx, Bytes mine) {
    const kernels::Operators& op = ctx.operators();
    op.set_zero(ctx, mine);
    auto* const sums = reinterpret_cast<double*>(mine.data());
    const std::vector<Parameter>& parameters = ModelRankInternals::store(model_).parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
        if (i > 0 && i % kTensorsBetweenPolls == 0) ctx.poll();
        if (parameters[i].counted_elsewhere) continue;
        const Tensor gradient = parameters[i].owned.of(parameters[i].gradient);
        if (gradient.size() == 0) continue;
        op.sum_of_squares(ctx, gradient, sums + ModelRankInternals::store(model_).ids()[i]);
    }
    const int64_t count = report_entries(model_.config());
    if (reports_loss_) op.add_up(ctx, model_.output()->losses(), sums + count - 2);
    op.add_up(ctx, std::span(&scalars()->stop_requested, 1), sums + count - 1);
}

void OptimizerStep::update(Context& ctx, std::span<const std::byte> all) {
    const kernels::Operators& op = ctx.operators();
    const std::span<const double> reports(reinterpret_cast<const double*>(all.data()),
                                          all.size() / sizeof(double));
    const int64_t entries = report_entries(model_.config());
    op.finish_report(ctx, reports, entries, entries - 2, scalars());
    op.adamw(ctx, tensors_,
             {.beta1 = options_.beta1, .beta2 = options_.beta2, .epsilon = options_.epsilon},
             scalars());
}

}  // namespace vocabpipe

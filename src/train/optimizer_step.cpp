// SPDX-License-Identifier: Apache-2.0
#include "src/train/optimizer_step.hpp"

#include "kernels/host/adamw.hpp"
#include "kernels/host/elementwise.hpp"
#include "kernels/host/norm.hpp"

#include <cmath>
#include <cstring>
#include <vector>

namespace vocabpipe {

OptimizerStep::OptimizerStep(GptRank& model, const Schedule& schedule, int rank,
                             OptimizerOptions options)
    : model_(model), reports_loss_(schedule.output.owners().front() == rank), options_(options) {}

void OptimizerStep::begin_step(int64_t step, float learning_rate, int64_t counted_tokens,
                               bool stop_requested) {
    step_ = step;
    learning_rate_ = learning_rate;
    counted_tokens_ = counted_tokens;
    stop_requested_ = stop_requested;
    result_ = {};
}

void OptimizerStep::reduce_tied(Context& ctx, Bytes received) {
    // E side + S side; the sum is the same on both ranks because addition commutes.
    Parameter& mine = model_.input() != nullptr ? model_.input()->parameters().front()
                                                : model_.output()->parameters().front();
    const ConstTensor other =
        received.empty()
            ? ConstTensor(model_.output()->parameters().front().gradient)
            : ConstTensor(received.data(), mine.gradient.rows, mine.gradient.cols, DType::fp32);
    kernels::host::add(ctx, mine.gradient, other, mine.gradient);
}

void OptimizerStep::report(Context& ctx, Bytes mine) {
    std::vector<double> slots(static_cast<size_t>(report_slots(model_.config())), 0.0);
    const std::vector<Parameter>& parameters = model_.store().parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
        if (parameters[i].counted_elsewhere) continue;
        slots[static_cast<size_t>(model_.store().ids()[i])] +=
            kernels::host::sum_of_squares(ctx, parameters[i].gradient);
    }
    if (reports_loss_) {
        for (const double loss : model_.output()->losses()) slots[slots.size() - 2] += loss;
    }
    slots.back() = stop_requested_ ? 1 : 0;
    std::memcpy(mine.data(), slots.data(), mine.size());
}

void OptimizerStep::update(Context& ctx, std::span<const std::byte> all) {
    const auto count = static_cast<size_t>(report_slots(model_.config()));
    std::vector<double> slots(all.size() / 8);
    std::memcpy(slots.data(), all.data(), all.size());
    const auto total = [&](size_t slot) {
        double sum = 0;
        for (size_t at = slot; at < slots.size(); at += count) sum += slots[at];
        return sum;
    };
    double squares = 0;
    for (size_t id = 0; id + 2 < count; ++id) squares += total(id);
    result_.grad_norm = std::sqrt(squares);
    result_.loss = total(count - 2);
    result_.stop_requested = total(count - 1) > 0;
    if (counted_tokens_ == 0 || !std::isfinite(squares)) return;
    result_.updated = true;

    double clip = 1;
    if (options_.clip_grad > 0) {
        clip = std::min(1.0, options_.clip_grad / (result_.grad_norm + 1e-6));
    }
    const auto t = static_cast<double>(step_);
    kernels::AdamWOptions adamw;
    adamw.lr = learning_rate_;
    adamw.beta1 = options_.beta1;
    adamw.beta2 = options_.beta2;
    adamw.epsilon = options_.epsilon;
    adamw.gradient_scale = static_cast<float>(clip);
    adamw.bias_correction1 = static_cast<float>(1 - std::pow(options_.beta1, t));
    adamw.bias_correction2 = static_cast<float>(1 - std::pow(options_.beta2, t));
    for (Parameter& p : model_.store().parameters()) {
        if (!p.exp_avg) continue;  // a tied output weight: updated with the input weight
        adamw.weight_decay = p.weight_decay ? options_.weight_decay : 0;
        const auto floats = [](Tensor t) {
            return std::span<float>(t.as<float>(), static_cast<size_t>(t.size()));
        };
        kernels::host::adamw_step(ctx, floats(p.master), floats(p.gradient), floats(p.exp_avg),
                                  floats(p.exp_avg_sq),
                                  p.weight.data == p.master.data ? Tensor() : p.weight, adamw);
    }
}

}  // namespace vocabpipe

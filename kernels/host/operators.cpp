// SPDX-License-Identifier: Apache-2.0
#include "kernels/operators.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/check.hpp"
#include "kernels/host/adamw.hpp"
#include "kernels/host/attention.hpp"
#include "kernels/host/elementwise.hpp"
#include "kernels/host/embedding.hpp"
#include "kernels/host/gated.hpp"
#include "kernels/host/gelu.hpp"
#include "kernels/host/head_norm.hpp"
#include "kernels/host/layer_norm.hpp"
#include "kernels/host/linear.hpp"
#include "kernels/host/norm.hpp"
#include "kernels/host/ordered_sum.hpp"
#include "kernels/host/rms_norm.hpp"
#include "kernels/host/rotary.hpp"
#include "kernels/host/vocabulary.hpp"

namespace vocabpipe::kernels::host {

namespace {

class HostOperators final : public Operators {
public:
    void linear_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                        Tensor y) const override {
        host::linear_forward(ctx, x, w, bias, y);
    }
    void linear_backward_input(Context& ctx, ConstTensor dy, ConstTensor w,
                               Tensor dx) const override {
        host::linear_backward_input(ctx, dy, w, dx);
    }
    void linear_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, Tensor dw,
                                Tensor dbias, bool accumulate) const override {
        host::linear_backward_weight(ctx, dy, x, dw, dbias, accumulate);
    }
    void layer_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma, ConstTensor beta,
                            float epsilon, Tensor y, Tensor statistics) const override {
        host::layer_norm_forward(ctx, x, gamma, beta, epsilon, y, statistics);
    }
    void layer_norm_backward_input(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                                   ConstTensor statistics, ConstTensor residual,
                                   Tensor dx) const override {
        host::layer_norm_backward_input(ctx, dy, x, gamma, statistics, residual, dx);
    }
    void layer_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x,
                                    ConstTensor statistics, Tensor dgamma, Tensor dbeta,
                                    bool accumulate) const override {
        host::layer_norm_backward_weight(ctx, dy, x, statistics, dgamma, dbeta, accumulate);
    }
    void layer_norm_backward(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                             ConstTensor statistics, ConstTensor residual, Tensor dx, Tensor dgamma,
                             Tensor dbeta, bool accumulate) const override {
        host::layer_norm_backward(ctx, dy, x, gamma, statistics, residual, dx, dgamma, dbeta,
                                  accumulate);
    }
    void rms_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma,
                          const RmsNormOptions& options, ConstTensor residual, Tensor y,
                          Tensor statistics) const override {
        host::rms_norm_forward(ctx, x, gamma, options, residual, y, statistics);
    }
    void rms_norm_backward_input(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                                 const RmsNormOptions& options, ConstTensor statistics,
                                 ConstTensor residual, Tensor dx) const override {
        host::rms_norm_backward_input(ctx, dy, x, gamma, options, statistics, residual, dx);
    }
    void rms_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x,
                                  ConstTensor statistics, Tensor dgamma,
                                  bool accumulate) const override {
        host::rms_norm_backward_weight(ctx, dy, x, statistics, dgamma, accumulate);
    }
    void rms_norm_backward(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                           const RmsNormOptions& options, ConstTensor statistics,
                           ConstTensor residual, Tensor dx, Tensor dgamma,
                           bool accumulate) const override {
        host::rms_norm_backward(ctx, dy, x, gamma, options, statistics, residual, dx, dgamma,
                                accumulate);
    }
    void head_norm_forward(Context& ctx, ConstTensor qkv, ConstTensor gamma_q, ConstTensor gamma_k,
                           const RmsNormOptions& options, const AttentionShape& shape, Tensor out,
                           Tensor statistics) const override {
        host::head_norm_forward(ctx, qkv, gamma_q, gamma_k, options, shape, out, statistics);
    }
    void head_norm_backward_input(Context& ctx, ConstTensor dout, ConstTensor qkv,
                                  ConstTensor gamma_q, ConstTensor gamma_k,
                                  const RmsNormOptions& options, ConstTensor statistics,
                                  const AttentionShape& shape, Tensor dqkv) const override {
        host::head_norm_backward_input(ctx, dout, qkv, gamma_q, gamma_k, options, statistics, shape,
                                       dqkv);
    }
    void head_norm_backward_weight(Context& ctx, ConstTensor dout, ConstTensor qkv,
                                   ConstTensor statistics, const AttentionShape& shape,
                                   Tensor dgamma_q, Tensor dgamma_k,
                                   bool accumulate) const override {
        host::head_norm_backward_weight(ctx, dout, qkv, statistics, shape, dgamma_q, dgamma_k,
                                        accumulate);
    }
    void rotary_forward(Context& ctx, ConstTensor table, const AttentionShape& shape,
                        Tensor qkv) const override {
        host::rotary_forward(ctx, table, shape, qkv);
    }
    void rotary_backward(Context& ctx, ConstTensor table, const AttentionShape& shape,
                         Tensor dqkv) const override {
        host::rotary_backward(ctx, table, shape, dqkv);
    }
    void gated_forward(Context& ctx, Activation activation, ConstTensor gate_up,
                       Tensor y) const override {
        host::gated_forward(ctx, activation, gate_up, y);
    }
    void gated_backward(Context& ctx, Activation activation, ConstTensor dy, ConstTensor gate_up,
                        Tensor dgate_up) const override {
        host::gated_backward(ctx, activation, dy, gate_up, dgate_up);
    }
    void gelu_forward(Context& ctx, ConstTensor x, Tensor y) const override {
        host::gelu_forward(ctx, x, y);
    }
    void scale(Context& ctx, ConstTensor x, float factor, Tensor y) const override {
        host::scale(ctx, x, factor, y);
    }
    [[nodiscard]] int64_t attention_workspace_bytes(AttentionShape shape, DType type,
                                                    int threads) const override {
        return host::attention_workspace_bytes(shape, type, threads);
    }
    void causal_attention_forward(Context& ctx, ConstTensor qkv, AttentionShape shape,
                                  std::span<const int32_t> first_visible, Tensor out,
                                  Tensor log_sum_exp,
                                  std::span<std::byte> workspace) const override {
        host::causal_attention_forward(ctx, qkv, shape, first_visible, out, log_sum_exp, workspace);
    }
    void causal_attention_backward(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor out,
                                   ConstTensor log_sum_exp, AttentionShape shape,
                                   std::span<const int32_t> first_visible, Tensor dqkv,
                                   std::span<std::byte> workspace) const override {
        host::causal_attention_backward(ctx, dout, qkv, out, log_sum_exp, shape, first_visible,
                                        dqkv, workspace);
    }
    void add(Context& ctx, ConstTensor a, ConstTensor b, Tensor out) const override {
        host::add(ctx, a, b, out);
    }
    void convert(Context& ctx, ConstTensor from, Tensor to) const override {
        host::convert(ctx, from, to);
    }
    void ordered_sum(Context& ctx, ConstTensor blocks, int64_t count, Tensor out) const override {
        host::ordered_sum(ctx, blocks, count, out);
    }
    void embedding_gather(Context& ctx, std::span<const int32_t> ids, ConstTensor shard,
                          int64_t first_row, Tensor out) const override {
        host::embedding_gather(ctx, ids, shard, first_row, out);
    }
    void embedding_scatter_add(Context& ctx, std::span<const int32_t> ids, ConstTensor dy,
                               int64_t first_row, Tensor dshard, bool accumulate) const override {
        host::embedding_scatter_add(ctx, ids, dy, first_row, dshard, accumulate);
    }
    void add_positions(Context& ctx, ConstTensor x, ConstTensor wpe, int64_t seq_length,
                       Tensor y) const override {
        host::add_positions(ctx, x, wpe, seq_length, y);
    }
    void positions_gradient(Context& ctx, ConstTensor dy, int64_t seq_length, Tensor dwpe,
                            bool accumulate) const override {
        host::positions_gradient(ctx, dy, seq_length, dwpe, accumulate);
    }
    [[nodiscard]] int64_t vocabulary_score_workspace_bytes(int64_t tokens, int64_t rows,
                                                           DType type) const override {
        return host::vocabulary_score_workspace_bytes(tokens, rows, type);
    }
    void vocabulary_score(Context& ctx, ConstTensor x, ConstTensor w,
                          std::span<const int32_t> labels, const VocabularyShard& shard,
                          const LossOptions& options, Tensor exp_logits, Tensor statistics,
                          std::span<std::byte> workspace) const override {
        host::vocabulary_score(ctx, x, w, labels, shard, options, exp_logits, statistics,
                               workspace);
    }
    void vocabulary_input_product(Context& ctx, ConstTensor exp_logits, ConstTensor w,
                                  Tensor u) const override {
        host::vocabulary_input_product(ctx, exp_logits, w, u);
    }
    void combine_statistics(Context& ctx, ConstTensor by_shard, std::span<const int32_t> labels,
                            std::span<const float> g, const VocabularyShard& mine, int my_shard,
                            const LossOptions& options, Tensor factors,
                            std::span<float> loss) const override {
        host::combine_statistics(ctx, by_shard, labels, g, mine, my_shard, options, factors, loss);
    }
    [[nodiscard]] int64_t vocabulary_input_gradient_workspace_bytes(int64_t hidden) const override {
        return host::vocabulary_input_gradient_workspace_bytes(hidden);
    }
    void vocabulary_input_gradient(Context& ctx, Tensor u, ConstTensor factors, ConstTensor w,
                                   std::span<const int32_t> labels, std::span<const float> g,
                                   const VocabularyShard& shard, const LossOptions& options,
                                   std::span<std::byte> workspace) const override {
        host::vocabulary_input_gradient(ctx, u, factors, w, labels, g, shard, options, workspace);
    }
    [[nodiscard]] int64_t vocabulary_weight_gradient_workspace_bytes(int64_t tokens, int64_t hidden,
                                                                     DType type) const override {
        return host::vocabulary_weight_gradient_workspace_bytes(tokens, hidden, type);
    }
    void vocabulary_weight_gradient(Context& ctx, ConstTensor x, ConstTensor exp_logits,
                                    ConstTensor factors, std::span<const int32_t> labels,
                                    std::span<const float> g, const VocabularyShard& shard,
                                    const LossOptions& options, Tensor dw, bool accumulate,
                                    std::span<std::byte> workspace) const override {
        host::vocabulary_weight_gradient(ctx, x, exp_logits, factors, labels, g, shard, options, dw,
                                         accumulate, workspace);
    }

    void linear_add_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                            ConstTensor residual, Tensor scratch, Tensor y) const override {
        host::linear_forward(ctx, x, w, bias, scratch);
        host::add(ctx, residual, scratch, y);
    }
    void linear_gelu_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                             Tensor before, Tensor y) const override {
        host::linear_forward(ctx, x, w, bias, before);
        host::gelu_forward(ctx, before, y);
    }
    void linear_gelu_backward_input(Context& ctx, ConstTensor dy, ConstTensor w, ConstTensor before,
                                    Tensor dx) const override {
        host::linear_backward_input(ctx, dy, w, dx);
        host::gelu_backward(ctx, dx, before, dx);
    }

    void set_zero(Context&, std::span<std::byte> bytes) const override {
        std::fill(bytes.begin(), bytes.end(), std::byte{0});
    }
    void copy(Context&, std::span<const std::byte> from, std::span<std::byte> to) const override {
        require(from.size() == to.size(), "source and destination of one length");
        std::copy(from.begin(), from.end(), to.begin());
    }

    void weighted_sum(Context&, std::span<const float> values, std::span<const float> weights,
                      double* sum) const override {
        require(values.size() == weights.size(), "one weight per value");
        double total = 0;
        for (size_t i = 0; i < values.size(); ++i) {
            total += static_cast<double>(values[i]) * static_cast<double>(weights[i]);
        }
        *sum = total;
    }
    void add_up(Context&, std::span<const double> values, double* sum) const override {
        for (const double value : values) *sum += value;
    }
    void sum_of_squares(Context& ctx, ConstTensor values, double* sum) const override {
        *sum += host::sum_of_squares(ctx, values);
    }
    void finish_report(Context&, std::span<const double> reports, int64_t slots,
                       StepScalars* scalars) const override {
        const auto count = static_cast<size_t>(slots);
        const auto total = [&](size_t slot) {
            double sum = 0;
            for (size_t at = slot; at < reports.size(); at += count) sum += reports[at];
            return sum;
        };
        double squares = 0;
        for (size_t slot = 0; slot + 2 < count; ++slot) squares += total(slot);
        StepScalars& s = *scalars;
        s.grad_norm = std::sqrt(squares);
        s.loss = total(count - 2);
        s.stops = total(count - 1);
        s.update = s.counted_tokens > 0 && std::isfinite(squares) && std::isfinite(s.loss) ? 1 : 0;
        s.gradient_scale =
            s.clip_grad > 0 ? static_cast<float>(std::min(1.0, s.clip_grad / (s.grad_norm + 1e-6)))
                            : 1.0F;
    }
    void adamw(Context& ctx, std::span<const AdamWTensor> tensors,
               const AdamWCoefficients& coefficients, const StepScalars* scalars) const override {
        if (scalars->update == 0) return;
        for (const AdamWTensor& t : tensors) {
            host::adamw_step(ctx, t.master, t.gradient, t.exp_avg, t.exp_avg_sq, t.weight,
                             {.lr = scalars->lr * t.lr_multiplier,
                              .beta1 = coefficients.beta1,
                              .beta2 = coefficients.beta2,
                              .epsilon = coefficients.epsilon,
                              .weight_decay = t.weight_decay,
                              .gradient_scale = scalars->gradient_scale,
                              .bias_correction1 = scalars->bias_correction1,
                              .bias_correction2 = scalars->bias_correction2});
        }
    }
};

}  // namespace

const Operators& operators() {
    static const HostOperators all;
    return all;
}

}  // namespace vocabpipe::kernels::host

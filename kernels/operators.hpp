// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/attention_shape.hpp"
#include "kernels/reference/vocabulary.hpp"
#include "kernels/rms_norm_options.hpp"
#include "kernels/step_scalars.hpp"
#include "vocabpipe/activation.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels {

/// Everything that the model, the executor and the optimizer compute, on one kind of device.
/// Tensors, spans and pointers to numbers are memory of that device. The host finishes an operator
/// before it returns; CUDA enqueues it on the stream of the lane that runs. What an operator
/// computes, its shapes and its errors are said where the host implements it:
/// kernels/host/<operator>.hpp.
class Operators {
public:
    virtual ~Operators() = default;

    // kernels/host/linear.hpp
    virtual void linear_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                                Tensor y) const = 0;
    /// y = x w^T + bias + residual. residual (N, out) may alias y; `scratch` (N, out) for devices
    /// that cannot add in the product.
    virtual void linear_add_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                                    ConstTensor residual, Tensor scratch, Tensor y) const = 0;
    /// before = x w^T + bias, y = gelu(before), or gelu of the sum before it was rounded.
    virtual void linear_gelu_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                                     Tensor before, Tensor y) const = 0;
    virtual void linear_backward_input(Context& ctx, ConstTensor dy, ConstTensor w,
                                       Tensor dx) const = 0;
    /// dx = gelu'(before) * (dy w).
    virtual void linear_gelu_backward_input(Context& ctx, ConstTensor dy, ConstTensor w,
                                            ConstTensor before, Tensor dx) const = 0;
    virtual void linear_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, Tensor dw,
                                        Tensor dbias, bool accumulate) const = 0;

    // kernels/host/layer_norm.hpp
    virtual void layer_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma,
                                    ConstTensor beta, float epsilon, Tensor y,
                                    Tensor statistics) const = 0;
    virtual void layer_norm_backward_input(Context& ctx, ConstTensor dy, ConstTensor x,
                                           ConstTensor gamma, ConstTensor statistics,
                                           ConstTensor residual, Tensor dx) const = 0;
    virtual void layer_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x,
                                            ConstTensor statistics, Tensor dgamma, Tensor dbeta,
                                            bool accumulate) const = 0;
    virtual void layer_norm_backward(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                                     ConstTensor statistics, ConstTensor residual, Tensor dx,
                                     Tensor dgamma, Tensor dbeta, bool accumulate) const = 0;

    // kernels/host/rms_norm.hpp
    virtual void rms_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma,
                                  const RmsNormOptions& options, ConstTensor residual, Tensor y,
                                  Tensor statistics) const = 0;
    virtual void rms_norm_backward_input(Context& ctx, ConstTensor dy, ConstTensor x,
                                         ConstTensor gamma, const RmsNormOptions& options,
                                         ConstTensor statistics, ConstTensor residual,
                                         Tensor dx) const = 0;
    virtual void rms_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x,
                                          ConstTensor statistics, Tensor dgamma,
                                          bool accumulate) const = 0;
    virtual void rms_norm_backward(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                                   const RmsNormOptions& options, ConstTensor statistics,
                                   ConstTensor residual, Tensor dx, Tensor dgamma,
                                   bool accumulate) const = 0;

    // kernels/host/head_norm.hpp
    virtual void head_norm_forward(Context& ctx, ConstTensor qkv, ConstTensor gamma_q,
                                   ConstTensor gamma_k, const RmsNormOptions& options,
                                   const AttentionShape& shape, Tensor out,
                                   Tensor statistics) const = 0;
    virtual void head_norm_backward_input(Context& ctx, ConstTensor dout, ConstTensor qkv,
                                          ConstTensor gamma_q, ConstTensor gamma_k,
                                          const RmsNormOptions& options, ConstTensor statistics,
                                          const AttentionShape& shape, Tensor dqkv) const = 0;
    virtual void head_norm_backward_weight(Context& ctx, ConstTensor dout, ConstTensor qkv,
                                           ConstTensor statistics, const AttentionShape& shape,
                                           Tensor dgamma_q, Tensor dgamma_k,
                                           bool accumulate) const = 0;

    // kernels/host/rotary.hpp
    virtual void rotary_forward(Context& ctx, ConstTensor table, const AttentionShape& shape,
                                Tensor qkv) const = 0;
    virtual void rotary_backward(Context& ctx, ConstTensor table, const AttentionShape& shape,
                                 Tensor dqkv) const = 0;

    // kernels/host/gated.hpp, kernels/host/gelu.hpp
    virtual void gated_forward(Context& ctx, Activation activation, ConstTensor gate_up,
                               Tensor y) const = 0;
    virtual void gated_backward(Context& ctx, Activation activation, ConstTensor dy,
                                ConstTensor gate_up, Tensor dgate_up) const = 0;
    virtual void gelu_forward(Context& ctx, ConstTensor x, Tensor y) const = 0;

    // kernels/host/attention.hpp
    [[nodiscard]] virtual int64_t attention_workspace_bytes(AttentionShape shape, DType type,
                                                            int threads) const = 0;
    virtual void causal_attention_forward(Context& ctx, ConstTensor qkv, AttentionShape shape,
                                          std::span<const int32_t> first_visible, Tensor out,
                                          Tensor log_sum_exp,
                                          std::span<std::byte> workspace) const = 0;
    virtual void causal_attention_backward(Context& ctx, ConstTensor dout, ConstTensor qkv,
                                           ConstTensor out, ConstTensor log_sum_exp,
                                           AttentionShape shape,
                                           std::span<const int32_t> first_visible, Tensor dqkv,
                                           std::span<std::byte> workspace) const = 0;

    // kernels/host/elementwise.hpp, kernels/host/ordered_sum.hpp
    virtual void add(Context& ctx, ConstTensor a, ConstTensor b, Tensor out) const = 0;
    virtual void convert(Context& ctx, ConstTensor from, Tensor to) const = 0;
    virtual void scale(Context& ctx, ConstTensor x, float factor, Tensor y) const = 0;
    virtual void ordered_sum(Context& ctx, ConstTensor blocks, int64_t count, Tensor out) const = 0;
    virtual void set_zero(Context& ctx, std::span<std::byte> bytes) const = 0;
    /// Equally long, not overlapping.
    virtual void copy(Context& ctx, std::span<const std::byte> from,
                      std::span<std::byte> to) const = 0;

    // kernels/host/embedding.hpp
    virtual void embedding_gather(Context& ctx, std::span<const int32_t> ids, ConstTensor shard,
                                  int64_t first_row, Tensor out) const = 0;
    virtual void embedding_scatter_add(Context& ctx, std::span<const int32_t> ids, ConstTensor dy,
                                       int64_t first_row, Tensor dshard, bool accumulate) const = 0;
    virtual void add_positions(Context& ctx, ConstTensor x, ConstTensor wpe, int64_t seq_length,
                               Tensor y) const = 0;
    virtual void positions_gradient(Context& ctx, ConstTensor dy, int64_t seq_length, Tensor dwpe,
                                    bool accumulate) const = 0;

    // kernels/host/vocabulary.hpp
    [[nodiscard]] virtual int64_t vocabulary_score_workspace_bytes(int64_t tokens, int64_t rows,
                                                                   DType type) const = 0;
    virtual void vocabulary_score(Context& ctx, ConstTensor x, ConstTensor w,
                                  std::span<const int32_t> labels, const VocabularyShard& shard,
                                  const LossOptions& options, Tensor exp_logits, Tensor statistics,
                                  std::span<std::byte> workspace) const = 0;
    virtual void vocabulary_input_product(Context& ctx, ConstTensor exp_logits, ConstTensor w,
                                          Tensor u) const = 0;
    virtual void combine_statistics(Context& ctx, ConstTensor by_shard,
                                    std::span<const int32_t> labels, std::span<const float> g,
                                    const VocabularyShard& mine, int my_shard,
                                    const LossOptions& options, Tensor factors,
                                    std::span<float> loss) const = 0;
    [[nodiscard]] virtual int64_t vocabulary_input_gradient_workspace_bytes(
        int64_t hidden) const = 0;
    virtual void vocabulary_input_gradient(Context& ctx, Tensor u, ConstTensor factors,
                                           ConstTensor w, std::span<const int32_t> labels,
                                           std::span<const float> g, const VocabularyShard& shard,
                                           const LossOptions& options,
                                           std::span<std::byte> workspace) const = 0;
    [[nodiscard]] virtual int64_t vocabulary_weight_gradient_workspace_bytes(int64_t tokens,
                                                                             int64_t hidden,
                                                                             DType type) const = 0;
    virtual void vocabulary_weight_gradient(Context& ctx, ConstTensor x, ConstTensor exp_logits,
                                            ConstTensor factors, std::span<const int32_t> labels,
                                            std::span<const float> g, const VocabularyShard& shard,
                                            const LossOptions& options, Tensor dw, bool accumulate,
                                            std::span<std::byte> workspace) const = 0;

    // What happens once per step.

    /// *sum = sum over i of values[i] weights[i], in double.
    virtual void weighted_sum(Context& ctx, std::span<const float> values,
                              std::span<const float> weights, double* sum) const = 0;
    /// *sum += values, in order.
    virtual void add_up(Context& ctx, std::span<const double> values, double* sum) const = 0;
    /// *sum += squares of all elements of an fp32 tensor (kernels/host/norm.hpp).
    virtual void sum_of_squares(Context& ctx, ConstTensor values, double* sum) const = 0;
    /// `reports`: of all ranks, `slots` doubles each: sums of squares, then loss, then 1 for a
    /// request to stop. Adds them over the ranks in order and fills in the second half of
    /// `scalars`.
    virtual void finish_report(Context& ctx, std::span<const double> reports, int64_t slots,
                               StepScalars* scalars) const = 0;
    /// One step of AdamW (kernels/reference/adamw.hpp) over all tensors; nothing if
    /// !scalars->update.
    virtual void adamw(Context& ctx, std::span<const AdamWTensor> tensors,
                       const AdamWCoefficients& coefficients, const StepScalars* scalars) const = 0;
};

namespace host {
[[nodiscard]] const Operators& operators();
}

}  // namespace vocabpipe::kernels

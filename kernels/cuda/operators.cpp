// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include "kernels/cuda/adamw.hpp"
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/embedding.hpp"
#include "kernels/cuda/gated.hpp"
#include "kernels/cuda/gelu.hpp"
#include "kernels/cuda/head_norm.hpp"
#include "kernels/cuda/layer_norm.hpp"
#include "kernels/cuda/linear.hpp"
#include "kernels/cuda/memory.hpp"
#include "kernels/cuda/norm.hpp"
#include "kernels/cuda/ordered_sum.hpp"
#include "kernels/cuda/rms_norm.hpp"
#include "kernels/cuda/rotary.hpp"
#include "kernels/cuda/step.hpp"
#include "kernels/cuda/vocabulary.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

class CudaOperators final : public Operators {
public:
    void linear_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                        Tensor y) const override {
        cuda::linear_forward(ctx, x, w, bias, y);
    }
    void linear_backward_input(Context& ctx, ConstTensor dy, ConstTensor w,
                               Tensor dx) const override {
        cuda::linear_backward_input(ctx, dy, w, dx);
    }
    void linear_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x, Tensor dw,
                                Tensor dbias, bool accumulate) const override {
        cuda::linear_backward_weight(ctx, dy, x, dw, dbias, accumulate);
    }
    void layer_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma, ConstTensor beta,
                            float epsilon, Tensor y, Tensor statistics) const override {
        cuda::layer_norm_forward(ctx, x, gamma, beta, epsilon, y, statistics);
    }
    void layer_norm_backward_input(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                                   ConstTensor statistics, ConstTensor residual,
                                   Tensor dx) const override {
        cuda::layer_norm_backward_input(ctx, dy, x, gamma, statistics, residual, dx);
    }
    void layer_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x,
                                    ConstTensor statistics, Tensor dgamma, Tensor dbeta,
                                    bool accumulate) const override {
        cuda::layer_norm_backward_weight(ctx, dy, x, statistics, dgamma, dbeta, accumulate);
    }
    void layer_norm_backward(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                             ConstTensor statistics, ConstTensor residual, Tensor dx, Tensor dgamma,
                             Tensor dbeta, bool accumulate) const override {
        cuda::layer_norm_backward(ctx, dy, x, gamma, statistics, residual, dx, dgamma, dbeta,
                                  accumulate);
    }
    void rms_norm_forward(Context& ctx, ConstTensor x, ConstTensor gamma,
                          const RmsNormOptions& options, ConstTensor residual, Tensor y,
                          Tensor statistics) const override {
        cuda::rms_norm_forward(ctx, x, gamma, options, residual, y, statistics);
    }
    void rms_norm_backward_input(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                                 const RmsNormOptions& options, ConstTensor statistics,
                                 ConstTensor residual, Tensor dx) const override {
        cuda::rms_norm_backward_input(ctx, dy, x, gamma, options, statistics, residual, dx);
    }
    void rms_norm_backward_weight(Context& ctx, ConstTensor dy, ConstTensor x,
                                  ConstTensor statistics, Tensor dgamma,
                                  bool accumulate) const override {
        cuda::rms_norm_backward_weight(ctx, dy, x, statistics, dgamma, accumulate);
    }
    void rms_norm_backward(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                           const RmsNormOptions& options, ConstTensor statistics,
                           ConstTensor residual, Tensor dx, Tensor dgamma,
                           bool accumulate) const override {
        cuda::rms_norm_backward(ctx, dy, x, gamma, options, statistics, residual, dx, dgamma,
                                accumulate);
    }
    void head_norm_forward(Context& ctx, ConstTensor qkv, ConstTensor gamma_q, ConstTensor gamma_k,
                           const RmsNormOptions& options, const AttentionShape& shape, Tensor out,
                           Tensor statistics) const override {
        cuda::head_norm_forward(ctx, qkv, gamma_q, gamma_k, options, shape, out, statistics);
    }
    void head_norm_backward_input(Context& ctx, ConstTensor dout, ConstTensor qkv,
                                  ConstTensor gamma_q, ConstTensor gamma_k,
                                  const RmsNormOptions& options, ConstTensor statistics,
                                  const AttentionShape& shape, Tensor dqkv) const override {
        cuda::head_norm_backward_input(ctx, dout, qkv, gamma_q, gamma_k, options, statistics, shape,
                                       dqkv);
    }
    void head_norm_backward_weight(Context& ctx, ConstTensor dout, ConstTensor qkv,
                                   ConstTensor statistics, const AttentionShape& shape,
                                   Tensor dgamma_q, Tensor dgamma_k,
                                   bool accumulate) const override {
        cuda::head_norm_backward_weight(ctx, dout, qkv, statistics, shape, dgamma_q, dgamma_k,
                                        accumulate);
    }
    void rotary_forward(Context& ctx, ConstTensor table, const AttentionShape& shape,
                        Tensor qkv) const override {
        cuda::rotary_forward(ctx, table, shape, qkv);
    }
    void rotary_backward(Context& ctx, ConstTensor table, const AttentionShape& shape,
                         Tensor dqkv) const override {
        cuda::rotary_backward(ctx, table, shape, dqkv);
    }
    void gated_forward(Context& ctx, Activation activation, ConstTensor gate_up,
                       Tensor y) const override {
        cuda::gated_forward(ctx, activation, gate_up, y);
    }
    void gated_backward(Context& ctx, Activation activation, ConstTensor dy, ConstTensor gate_up,
                        Tensor dgate_up) const override {
        cuda::gated_backward(ctx, activation, dy, gate_up, dgate_up);
    }
    void gelu_forward(Context& ctx, ConstTensor x, Tensor y) const override {
        cuda::gelu_forward(ctx, x, y);
    }
    void scale(Context& ctx, ConstTensor x, float factor, Tensor y) const override {
        cuda::scale(ctx, x, factor, y);
    }
    [[nodiscard]] int64_t attention_workspace_bytes(AttentionShape shape, DType type,
                                                    int threads) const override {
        return cuda::attention_workspace_bytes(shape, type, threads);
    }
    void causal_attention_forward(Context& ctx, ConstTensor qkv, AttentionShape shape,
                                  std::span<const int32_t> first_visible, Tensor out,
                                  Tensor log_sum_exp,
                                  std::span<std::byte> workspace) const override {
        cuda::causal_attention_forward(ctx, qkv, shape, first_visible, out, log_sum_exp, workspace);
    }
    void causal_attention_backward(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor out,
                                   ConstTensor log_sum_exp, AttentionShape shape,
                                   std::span<const int32_t> first_visible, Tensor dqkv,
                                   std::span<std::byte> workspace) const override {
        cuda::causal_attention_backward(ctx, dout, qkv, out, log_sum_exp, shape, first_visible,
                                        dqkv, workspace);
    }
    void add(Context& ctx, ConstTensor a, ConstTensor b, Tensor out) const override {
        cuda::add(ctx, a, b, out);
    }
    void convert(Context& ctx, ConstTensor from, Tensor to) const override {
        cuda::convert(ctx, from, to);
    }
    void ordered_sum(Context& ctx, ConstTensor blocks, int64_t count, Tensor out) const override {
        cuda::ordered_sum(ctx, blocks, count, out);
    }
    void embedding_gather(Context& ctx, std::span<const int32_t> ids, ConstTensor shard,
                          int64_t first_row, Tensor out) const override {
        cuda::embedding_gather(ctx, ids, shard, first_row, out);
    }
    void embedding_scatter_add(Context& ctx, std::span<const int32_t> ids, ConstTensor dy,
                               int64_t first_row, Tensor dshard, bool accumulate) const override {
        cuda::embedding_scatter_add(ctx, ids, dy, first_row, dshard, accumulate);
    }
    void add_positions(Context& ctx, ConstTensor x, ConstTensor wpe, int64_t seq_length,
                       Tensor y) const override {
        cuda::add_positions(ctx, x, wpe, seq_length, y);
    }
    void positions_gradient(Context& ctx, ConstTensor dy, int64_t seq_length, Tensor dwpe,
                            bool accumulate) const override {
        cuda::positions_gradient(ctx, dy, seq_length, dwpe, accumulate);
    }
    [[nodiscard]] int64_t vocabulary_score_workspace_bytes(int64_t tokens, int64_t rows,
                                                           DType type) const override {
        return cuda::vocabulary_score_workspace_bytes(tokens, rows, type);
    }
    void vocabulary_score(Context& ctx, ConstTensor x, ConstTensor w,
                          std::span<const int32_t> labels, const VocabularyShard& shard,
                          const LossOptions& options, Tensor exp_logits, Tensor statistics,
                          std::span<std::byte> workspace) const override {
        cuda::vocabulary_score(ctx, x, w, labels, shard, options, exp_logits, statistics,
                               workspace);
    }
    void vocabulary_input_product(Context& ctx, ConstTensor exp_logits, ConstTensor w,
                                  Tensor u) const override {
        cuda::vocabulary_input_product(ctx, exp_logits, w, u);
    }
    void combine_statistics(Context& ctx, ConstTensor by_shard, std::span<const int32_t> labels,
                            std::span<const float> g, const VocabularyShard& mine, int my_shard,
                            const LossOptions& options, Tensor factors,
                            std::span<float> loss) const override {
        cuda::combine_statistics(ctx, by_shard, labels, g, mine, my_shard, options, factors, loss);
    }
    [[nodiscard]] int64_t vocabulary_input_gradient_workspace_bytes(int64_t hidden) const override {
        return cuda::vocabulary_input_gradient_workspace_bytes(hidden);
    }
    void vocabulary_input_gradient(Context& ctx, Tensor u, ConstTensor factors, ConstTensor w,
                                   std::span<const int32_t> labels, std::span<const float> g,
                                   const VocabularyShard& shard, const LossOptions& options,
                                   std::span<std::byte> workspace) const override {
        cuda::vocabulary_input_gradient(ctx, u, factors, w, labels, g, shard, options, workspace);
    }
    [[nodiscard]] int64_t vocabulary_weight_gradient_workspace_bytes(int64_t tokens, int64_t hidden,
                                                                     DType type) const override {
        return cuda::vocabulary_weight_gradient_workspace_bytes(tokens, hidden, type);
    }
    void vocabulary_weight_gradient(Context& ctx, ConstTensor x, ConstTensor exp_logits,
                                    ConstTensor factors, std::span<const int32_t> labels,
                                    std::span<const float> g, const VocabularyShard& shard,
                                    const LossOptions& options, Tensor dw, bool accumulate,
                                    std::span<std::byte> workspace) const override {
        cuda::vocabulary_weight_gradient(ctx, x, exp_logits, factors, labels, g, shard, options, dw,
                                         accumulate, workspace);
    }

    void linear_add_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                            ConstTensor residual, Tensor scratch, Tensor y) const override {
        cuda::linear_add_forward(ctx, x, w, bias, residual, scratch, y);
    }
    void linear_gelu_forward(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                             Tensor before, Tensor y) const override {
        cuda::linear_gelu_forward(ctx, x, w, bias, before, y);
    }
    void linear_gelu_backward_input(Context& ctx, ConstTensor dy, ConstTensor w, ConstTensor before,
                                    Tensor dx) const override {
        cuda::linear_gelu_backward_input(ctx, dy, w, before, dx);
    }

    void set_zero(Context& ctx, std::span<std::byte> bytes) const override {
        cuda::set_zero(ctx, bytes);
    }
    void copy(Context& ctx, std::span<const std::byte> from,
              std::span<std::byte> to) const override {
        cuda::copy(ctx, from, to);
    }

    void weighted_sum(Context& ctx, std::span<const float> values, std::span<const float> weights,
                      double* sum) const override {
        cuda::weighted_sum(ctx, values, weights, sum);
    }
    void add_up(Context& ctx, std::span<const double> values, double* sum) const override {
        cuda::add_up(ctx, values, sum);
    }
    void sum_of_squares(Context& ctx, ConstTensor values, double* sum) const override {
        cuda::sum_of_squares(ctx, values, sum);
    }
    void finish_report(Context& ctx, std::span<const double> reports, int64_t slots,
                       StepScalars* scalars) const override {
        cuda::finish_report(ctx, reports, slots, scalars);
    }
    void adamw(Context& ctx, std::span<const AdamWTensor> tensors,
               const AdamWCoefficients& coefficients, const StepScalars* scalars) const override {
        cuda::adamw(ctx, tensors, coefficients, scalars);
    }
};

}  // namespace

const Operators& operators() {
    static const CudaOperators all;
    return all;
}

}  // namespace vocabpipe::kernels::cuda

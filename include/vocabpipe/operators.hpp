// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "vocabpipe/activation.hpp"
#include "vocabpipe/attention_shape.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/distillation_options.hpp"
#include "vocabpipe/policy_loss_options.hpp"
#include "vocabpipe/rms_norm_options.hpp"
#include "vocabpipe/router_options.hpp"
#include "vocabpipe/step_scalars.hpp"
#include "vocabpipe/tensor.hpp"
#include "vocabpipe/tile_map.hpp"
#include "vocabpipe/vocabulary_loss.hpp"

namespace vocabpipe::kernels {

/// Everything that the model, the executor and the optimizer compute, on one kind of device: a
/// table of functions. A module calls them as `ctx.operators().add(ctx, a, b, out)`. Copy the table
/// and replace entries to use operators of your own; no entry may be null.
///
/// Tensors, spans and pointers to numbers are memory of the device. Tensors are fp32 or bf16 of any
/// row stride, and an output overlaps no other argument, unless an operator says otherwise. N is
/// the number of tokens, h the hidden size. "Empty" is an empty view or span. With `accumulate` a
/// gradient is added to what is there; without it the gradient is set.
///
/// The host finishes an operator before it returns, and calls Context::poll() between chunks of a
/// few milliseconds. CUDA enqueues on the stream of the lane that runs. Operators throw UsageError
/// for arguments with wrong shapes or types. Bits do not depend on the number of threads.
struct Operators {
    // Linear layers.

    /// y = x w^T + bias. x (N, in), w (out, in) of x's type, bias (1, out) or empty, y (N, out).
    void (*linear_forward)(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias, Tensor y);
    /// y = x w^T + bias + residual. residual (N, out) may be y. The product goes through `scratch`
    /// (N, out) where a device cannot add to it.
    void (*linear_add_forward)(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                               ConstTensor residual, Tensor scratch, Tensor y);
    /// before = x w^T + bias, y = gelu_tanh(before), computed from `before` or from its unrounded
    /// sum. before and y (N, out).
    void (*linear_gelu_forward)(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                                Tensor before, Tensor y);
    /// dx = dy w. dy (N, out), w (out, in) of dy's type, dx (N, in).
    void (*linear_backward_input)(Context& ctx, ConstTensor dy, ConstTensor w, Tensor dx);
    /// dx = gelu_tanh'(before) * (dy w); before of dx's shape.
    void (*linear_gelu_backward_input)(Context& ctx, ConstTensor dy, ConstTensor w,
                                       ConstTensor before, Tensor dx);
    /// dw = dy^T x, dbias = column sums of dy. dy (N, out), x (N, in) of dy's type, dw (out, in)
    /// fp32, dbias (1, out) fp32 or empty. With in = 0 only dbias.
    void (*linear_backward_weight)(Context& ctx, ConstTensor dy, ConstTensor x, Tensor dw,
                                   Tensor dbias, bool accumulate);

    // Norms.

    /// y = gamma * z + beta with z = (x - mean) * inverse_std, per row; inverse_std = 1 /
    /// sqrt(variance + epsilon), the variance being divided by h (Ba, Kiros and Hinton 2016).
    /// x, y (N, h); gamma, beta (1, h); statistics (N, 2) fp32: mean, inverse_std.
    void (*layer_norm_forward)(Context& ctx, ConstTensor x, ConstTensor gamma, ConstTensor beta,
                               float epsilon, Tensor y, Tensor statistics);
    /// dx = inverse_std * (g - mean_h(g) - z * mean_h(g * z)) + residual with g = dy * gamma.
    /// dy, x, dx (N, h); residual (N, h) is the gradient that arrives around the layer, or empty;
    /// dx may alias residual or dy.
    void (*layer_norm_backward_input)(Context& ctx, ConstTensor dy, ConstTensor x,
                                      ConstTensor gamma, ConstTensor statistics,
                                      ConstTensor residual, Tensor dx);
    /// dgamma = sum over rows of dy * z, dbeta = sum over rows of dy. dgamma, dbeta (1, h) fp32.
    void (*layer_norm_backward_weight)(Context& ctx, ConstTensor dy, ConstTensor x,
                                       ConstTensor statistics, Tensor dgamma, Tensor dbeta,
                                       bool accumulate);
    /// layer_norm_backward_input() and layer_norm_backward_weight() in one, with the same bits.
    void (*layer_norm_backward)(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                                ConstTensor statistics, ConstTensor residual, Tensor dx,
                                Tensor dgamma, Tensor dbeta, bool accumulate);

    /// y = residual + (gamma + weight_offset) * z with z = x * inverse_rms, per row;
    /// inverse_rms = 1 / sqrt(mean_h(x^2) + epsilon) (Zhang and Sennrich 2019).
    /// x, y (N, h); gamma (1, h); residual (N, h) or empty; statistics (N, 1) fp32: inverse_rms.
    /// y may alias residual.
    void (*rms_norm_forward)(Context& ctx, ConstTensor x, ConstTensor gamma,
                             const RmsNormOptions& options, ConstTensor residual, Tensor y,
                             Tensor statistics);
    /// dx = inverse_rms * (g - z * mean_h(g * z)) + residual with g = dy * (gamma + weight_offset).
    /// dy, x, dx (N, h); residual (N, h) is the gradient that arrives around the layer, or empty;
    /// dx may alias residual or dy.
    void (*rms_norm_backward_input)(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                                    const RmsNormOptions& options, ConstTensor statistics,
                                    ConstTensor residual, Tensor dx);
    /// The sum over the columns of each row that rms_norm_forward() or rms_norm_backward_input()
    /// turns into a mean: of x^2 if dy, gamma and statistics are empty, else of g * z. sums (1, N)
    /// fp32.
    void (*rms_norm_sums)(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                          const RmsNormOptions& options, ConstTensor statistics, Tensor sums);
    /// dgamma = sum over rows of dy * z. dgamma (1, h) fp32.
    void (*rms_norm_backward_weight)(Context& ctx, ConstTensor dy, ConstTensor x,
                                     ConstTensor statistics, Tensor dgamma, bool accumulate);
    /// rms_norm_backward_input() and rms_norm_backward_weight() in one, with the same bits.
    void (*rms_norm_backward)(Context& ctx, ConstTensor dy, ConstTensor x, ConstTensor gamma,
                              const RmsNormOptions& options, ConstTensor statistics,
                              ConstTensor residual, Tensor dx, Tensor dgamma, bool accumulate);

    /// RMSNorm of every head of q with gamma_q and of k with gamma_k, each over its head_size; v is
    /// copied (Qwen 3). qkv, out (N, qkv_columns); gamma_q, gamma_k (1, head_size); statistics (N,
    /// heads + kv_heads) fp32: inverse_rms of q's heads, then k's.
    void (*head_norm_forward)(Context& ctx, ConstTensor qkv, ConstTensor gamma_q,
                              ConstTensor gamma_k, const RmsNormOptions& options,
                              const AttentionShape& shape, Tensor out, Tensor statistics);
    /// dqkv, the gradient before the norm, from dout, the gradient after it; v's is copied.
    void (*head_norm_backward_input)(Context& ctx, ConstTensor dout, ConstTensor qkv,
                                     ConstTensor gamma_q, ConstTensor gamma_k,
                                     const RmsNormOptions& options, ConstTensor statistics,
                                     const AttentionShape& shape, Tensor dqkv);
    /// dgamma_q, dgamma_k (1, head_size) fp32: sums over tokens and heads of dout * z.
    void (*head_norm_backward_weight)(Context& ctx, ConstTensor dout, ConstTensor qkv,
                                      ConstTensor statistics, const AttentionShape& shape,
                                      Tensor dgamma_q, Tensor dgamma_k, bool accumulate);

    // Positions and attention.

    /// Rotates the first r columns of every head of q and k in place by its token's position t (Su
    /// et al. 2021), in the half-split form of Hugging Face's files: with c, s of t and i < r/2,
    ///   (x_i, x_{i + r/2}) becomes (x_i c_i - x_{i + r/2} s_i, x_{i + r/2} c_i + x_i s_i).
    /// qkv (N, qkv_columns); table (seq_length or more, r) fp32, r even and at most head_size: row
    /// t is c (r/2), then s (r/2).
    void (*rotary_forward)(Context& ctx, ConstTensor table, const AttentionShape& shape,
                           Tensor qkv);
    /// The gradient before the rotation from the one after it, in place: the transposed rotation.
    void (*rotary_backward)(Context& ctx, ConstTensor table, const AttentionShape& shape,
                            Tensor dqkv);

    /// Bytes of `workspace` that forward and backward need with `threads` threads of the host and
    /// tensors of `type`.
    int64_t (*attention_workspace_bytes)(AttentionShape shape, DType type, int threads);
    /// Per sequence and query head, over the keys j that query i sees, both counted as tokens of
    /// the sequence. If shape.causal is false, a query sees all keys of its sequence:
    ///   out_i = sum_j p_ij v_j,  p_ij = exp(s_ij - log_sum_exp_i),  s_ij = scale q_i k_j,
    ///   soft-capped.
    /// With M = shape.query_tokens() and N = shape.tokens(): q (M, query_columns); kv (N,
    /// key_value_columns): columns k | v; out (M, output_columns); log_sum_exp (M, heads) fp32,
    /// natural logarithm of the sum over the scores. first_visible (M): for each query the first
    /// key of its sequence that it may see, besides the limits of the shape; from 0 to the query's
    /// own token, which only the host checks. Empty: 0 for all, as it must be if attention is not
    /// causal. `workspace` is 64-byte aligned and holds nothing between calls. If
    /// shape.first_query() is a multiple of 64, a causal query's rows of out, log_sum_exp and dq
    /// (below) have the bits that they have among all queries of the sequence; not so on a GPU
    /// where cuDNN computes all of them.
    void (*causal_attention_forward)(Context& ctx, ConstTensor q, ConstTensor kv,
                                     AttentionShape shape, std::span<const int32_t> first_visible,
                                     Tensor out, Tensor log_sum_exp,
                                     std::span<std::byte> workspace);
    /// dq, dkv (shaped as q, kv) = gradient of causal_attention_forward from dout (shaped as out);
    /// p is recomputed from q, kv and log_sum_exp:
    ///   dv_j = sum_i p_ij dout_i,  ds_ij = p_ij (dout_i v_j - dout_i out_i) d s_ij / d (q_i k_j),
    ///   dq_i = sum_j ds_ij k_j,  dk_j = sum_i ds_ij q_i,
    /// dk and dv summed over the query heads that read the key/value head; 0 for keys that no query
    /// sees.
    void (*causal_attention_backward)(Context& ctx, ConstTensor dout, ConstTensor q, ConstTensor kv,
                                      ConstTensor out, ConstTensor log_sum_exp,
                                      AttentionShape shape, std::span<const int32_t> first_visible,
                                      Tensor dq, Tensor dkv, std::span<std::byte> workspace);
    /// Gives every softmax of causal_attention_forward() one more score, the sink of its head,
    /// with a value of 0 (attention sinks: Xiao et al. 2023, arXiv 2309.17453, section 3.3; a
    /// learnable softmax offset in Megatron). In place, from its results:
    ///   log_sum_exp_i becomes log(exp(log_sum_exp_i) + exp(sink)), out_i shrinks by the
    ///   exponential of what that adds.
    /// sinks (1, heads) of out's type; out (M, output_columns); log_sum_exp (M, heads) fp32.
    /// causal_attention_backward() of both is the gradient with sinks.
    void (*attention_sinks_forward)(Context& ctx, ConstTensor sinks, const AttentionShape& shape,
                                    Tensor out, Tensor log_sum_exp);
    /// dscores (M, heads) fp32: the gradient of the sink as each query and head used it,
    /// -exp(sink - log_sum_exp_i) (dout_i out_i). sinks, out and log_sum_exp as
    /// attention_sinks_forward() left them; dout (M, output_columns) of out's type.
    void (*attention_sinks_backward)(Context& ctx, ConstTensor sinks, ConstTensor dout,
                                     ConstTensor out, ConstTensor log_sum_exp,
                                     const AttentionShape& shape, Tensor dscores);

    // Generation: a few more tokens of a sequence whose keys and values are cached.

    /// y = x w^T + bias + residual for a small number n of rows. Every row has the bits that
    /// linear_forward() of this row alone has, with a residual those of linear_add_forward(). x (n,
    /// in), w and bias as there; residual (n, out) may be empty or y; scratch (n, out) is needed
    /// with it; y (n, out).
    void (*linear_rows_forward)(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias,
                                ConstTensor residual, Tensor scratch, Tensor y);
    /// Attention of the last n tokens of a sequence to all of its tokens, as
    /// causal_attention_forward() defines it. q (n, query_columns); kv (seq_length,
    /// key_value_columns): k | v of every token, n <= seq_length; sinks (1, heads) of q's type:
    /// as attention_sinks_forward() adds them; empty: none; out (n, output_columns).
    /// shape.sequences is 1, and shape.causal true. A row's bits do not depend on n. For small n:
    /// queries do not share what they read.
    void (*cached_attention_forward)(Context& ctx, ConstTensor q, ConstTensor kv, ConstTensor sinks,
                                     const AttentionShape& shape, Tensor out);
    /// Logits of n tokens: z_ij = x_i w_j, soft-capped with softcap > 0. x (n, h), w (v, h) of x's
    /// type, z (n, v) fp32, v may be 0. The bits of a logit depend only on its rows of x and w, so
    /// they depend neither on n nor on how the vocabulary is sharded. For small n.
    void (*logits_forward)(Context& ctx, ConstTensor x, ConstTensor w, float softcap, Tensor z);

    // Element by element.

    /// y = activation(x) (Hendrycks and Gimpel 2016: GELU and SiLU). Any equal shapes; y may alias
    /// x.
    void (*activation_forward)(Context& ctx, Activation activation, ConstTensor x, Tensor y);
    /// dx = dy * activation'(x). dx may alias dy or x.
    void (*activation_backward)(Context& ctx, Activation activation, ConstTensor dy, ConstTensor x,
                                Tensor dx);
    /// y = activation(gate) * up (Shazeer 2020: SwiGLU, GeGLU). gate_up (N, 2 f): gate | up; y
    /// (N, f).
    void (*gated_forward)(Context& ctx, Activation activation, ConstTensor gate_up, Tensor y);
    /// dgate = dy * up * activation'(gate), dup = dy * activation(gate). dy (N, f), dgate_up (N, 2
    /// f).
    void (*gated_backward)(Context& ctx, Activation activation, ConstTensor dy, ConstTensor gate_up,
                           Tensor dgate_up);
    /// out = a + b, summed in fp32. Equal shapes, any types; out may alias a or b (of the same
    /// type).
    void (*add)(Context& ctx, ConstTensor a, ConstTensor b, Tensor out);
    /// to = from, rounded to nearest even where `to` is narrower. Equal shapes, any types.
    void (*convert)(Context& ctx, ConstTensor from, Tensor to);
    /// y = factor * x, in fp32. Equal shapes and types; y may alias x.
    void (*scale)(Context& ctx, ConstTensor x, float factor, Tensor y);
    /// Ordered reduction of the partial rows of `count` ranks: out (rows, cols) = blocks[0] +
    /// blocks[1] + ... of blocks (count rows, cols), block-major, added in this order in fp32 and
    /// rounded once to the type of `out`. If own >= 0, `out` has the type of `blocks` and already
    /// holds block `own`, whose place in `blocks` is not read. The same bits on every device.
    void (*ordered_sum)(Context& ctx, ConstTensor blocks, int64_t count, int64_t own, Tensor out);
    /// out = partials[0] + partials[1] + ... + bias + residual: the partial products of the `count`
    /// ranks of a team, added in this order in fp32 and rounded once. partials (count rows, cols),
    /// block-major; bias (1, cols) or empty; residual, out (rows, cols), residual may be out or
    /// empty. All of one type. The same bits on every device.
    void (*fold_partials)(Context& ctx, ConstTensor partials, int64_t count, ConstTensor bias,
                          ConstTensor residual, Tensor out);
    /// sums[j] = sum over the rows of x[., j] [+ sums[j]]. x (N, cols); sums (1, cols) fp32.
    void (*column_sums)(Context& ctx, ConstTensor x, Tensor sums, bool accumulate);
    /// Every byte becomes 0.
    void (*set_zero)(Context& ctx, std::span<std::byte> bytes);
    /// to = from, equally long.
    void (*copy)(Context& ctx, std::span<const std::byte> from, std::span<std::byte> to);

    // Embeddings.

    /// out[n] = table[ids[n]], or 0 where the shard does not hold that row. N ids; shard (v, h) are
    /// rows first_row .. first_row + v - 1 of the table, v may be 0; out (N, h).
    void (*embedding_gather)(Context& ctx, std::span<const int32_t> ids, ConstTensor shard,
                             int64_t first_row, Tensor out);
    /// dshard[ids[n] - first_row] += dy[n] for the ids of this shard, in the order n = 0 .. N-1.
    /// dy (N, h); dshard (v, h) fp32, unless `accumulate` set to -0.0 first: -0.0 + x is x for
    /// every x, while +0.0 + -0.0 is +0.0. So adding a row that no id names to another gradient
    /// changes no bit.
    void (*embedding_scatter_add)(Context& ctx, std::span<const int32_t> ids, ConstTensor dy,
                                  int64_t first_row, Tensor dshard, bool accumulate);
    /// to += from, then from = -0.0. `from` is as embedding_scatter_add() left it: all elements are
    /// -0.0 except in rows id - first_row of the ids, so a device may skip the other rows. `ids`:
    /// one span for each of its calls; the outer span is in the host's memory. from, to (v, h)
    /// fp32.
    void (*embedding_take)(Context& ctx, std::span<const std::span<const int32_t>> ids,
                           int64_t first_row, Tensor from, Tensor to);
    /// y[n] = x[n] + wpe[positions[n]], or without positions (empty) wpe[n % seq_length]. x, y (N,
    /// h); positions (N), each a row of wpe; wpe (>= seq_length, h); y may alias x. The gradient
    /// with positions is embedding_scatter_add()'s with them as ids.
    void (*add_positions)(Context& ctx, ConstTensor x, ConstTensor wpe, int64_t seq_length,
                          std::span<const int32_t> positions, Tensor y);
    /// dwpe[t] = sum of dy[n] with n % seq_length == t, over the sequences in order. dy (N, h);
    /// dwpe (>= seq_length, h) fp32: added to if `accumulate`, else rows >= seq_length become 0.
    void (*positions_gradient)(Context& ctx, ConstTensor dy, int64_t seq_length, Tensor dwpe,
                               bool accumulate);

    // Mixture of experts: E experts, of which every token chooses k. Slot n k + j is the j-th
    // choice of token n. The rows of experts are the slots sorted by expert: expert e has rows
    // row_begin[e] .. row_begin[e+1] - 1, in the order of their tokens. A block that computes y =
    // f(x) on such rows:
    //
    //     linear_forward: logits (N, E)    router_forward: choice, weights    sort_by_expert
    //     gather_rows -> grouped_linear_forward, gated_forward, ... -> combine_rows
    //
    // In the backward, gather_rows brings dy to the rows, with the weights, or without them if
    // combine_backward_weights() runs further inside; combine_rows without weights adds up dx.

    /// choice (N k): the k experts of a token with the greatest score + bias inside its top_groups
    /// groups, best first; ties go to the smaller index. Without bias and groups, logits are
    /// compared, which have the same order. NaN logits select arbitrary but distinct experts.
    /// weights (N, k): scores of the chosen, divided by their sum + 1e-20 if options.normalize,
    /// times options.scaling. load (1, E): how many tokens chose e. score_sums (1, E): sum over
    /// tokens of score_e; sigmoid scores are first divided by their token's sum + 1e-20. log_z (N,
    /// 1): log sum_e exp(logit_e). logits (N, E), bias (1, E) or empty; all tensors fp32.
    void (*router_forward)(Context& ctx, ConstTensor logits, ConstTensor bias,
                           const RouterOptions& options, std::span<int32_t> choice, Tensor weights,
                           Tensor load, Tensor score_sums, Tensor log_z);
    /// dlogits (N, E): the gradient of the logits from dweights (N, k), plus the gradient of
    /// scales.balance sum_e load_e score_sums_e through score_sums, plus that of scales.z sum_n
    /// log_z_n^2. `load` may count more tokens than these. All tensors fp32.
    void (*router_backward)(Context& ctx, ConstTensor logits, ConstTensor log_z,
                            std::span<const int32_t> choice, ConstTensor dweights, ConstTensor load,
                            const RouterOptions& options, const RouterLossScales& scales,
                            Tensor dlogits);
    /// sums (3 + E) = or += these, of one microbatch: 1; E / (k N^2) sum_e load_e score_sum_e,
    /// which is 1 if all experts have equal loads and scores; 1 / N sum_n log_z_n^2; load_e. load
    /// and score_sums (1, E), log_z (N, 1), N > 0, as router_forward() made them.
    void (*sum_routing)(Context& ctx, ConstTensor load, ConstTensor score_sums, ConstTensor log_z,
                        int64_t top_k, std::span<double> sums, bool accumulate);
    /// row_begin (E + 1), row_of_slot (N k) and slot_of_row (N k), its inverse. choice: from 0 to
    /// E - 1, which only the host checks.
    void (*sort_by_expert)(Context& ctx, std::span<const int32_t> choice,
                           std::span<int32_t> row_begin, std::span<int32_t> row_of_slot,
                           std::span<int32_t> slot_of_row);
    /// to = from, from the device to memory of the host, after all that was enqueued before has
    /// run: the only operator that always waits for the device.
    void (*read_to_host)(Context& ctx, std::span<const int32_t> from, std::span<int32_t> to);
    /// The first elements of `to`, on the device, = from, in the host's memory, which may change as
    /// soon as this returns. Waits for the device only if the copy of the last call but one has not
    /// arrived.
    void (*write_from_host)(Context& ctx, std::span<const int32_t> from, std::span<int32_t> to);
    /// y[r] = x[slot_of_row[r] / per_token], times that slot's weight if there are weights. x (N,
    /// h), y (R, h) of x's type, R slots; weights (N, per_token) fp32 or empty.
    void (*gather_rows)(Context& ctx, ConstTensor x, std::span<const int32_t> slot_of_row,
                        int64_t per_token, ConstTensor weights, Tensor y);
    /// y[n] = residual[n] + sum over j of weights[n, j] rows[row_of_slot[n per_token + j]], added
    /// in this order in fp32 and rounded once. rows (R, h); y (N, h) and residual, which may be
    /// empty or y, of rows' type; weights (N, per_token) fp32, empty: 1. A slot whose row is
    /// negative adds nothing.
    void (*combine_rows)(Context& ctx, ConstTensor rows, std::span<const int32_t> row_of_slot,
                         int64_t per_token, ConstTensor weights, ConstTensor residual, Tensor y);
    /// y[n] = residual[n] + sum over j of parts[j][row_of_slot[n parts + j]], added in this order
    /// in fp32 and rounded once: the results of several members of a team for a token. At most
    /// kMostParts parts (any rows, h) and residual, which may be empty or y, of y's type; y (N, h);
    /// row_of_slot (N, parts); a part whose row is negative adds nothing and may be empty.
    void (*combine_parts)(Context& ctx, std::span<const ConstTensor> parts,
                          std::span<const int32_t> row_of_slot, ConstTensor residual, Tensor y);
    /// Slot slot_of_row[r] of dweights (N, k) fp32 = dot of dy[r] and rows[r], both (R, h) and of
    /// one type. dy is the gradient as gather_rows makes it without weights, or this gradient
    /// further inside if all between is linear: dot(dy w, x) = dot(dy, x w^T).
    void (*combine_backward_weights)(Context& ctx, ConstTensor dy, ConstTensor rows,
                                     std::span<const int32_t> slot_of_row, Tensor dweights);
    /// y[r] = weight of slot slot_of_row[r] * x[r]. x, y (R, h) of one type; weights (N, k) fp32;
    /// y may be x.
    void (*scale_rows)(Context& ctx, ConstTensor x, std::span<const int32_t> slot_of_row,
                       ConstTensor weights, Tensor y);
    /// y = x w_e^T in the rows of every expert e, from column `first_column` of the product on. x
    /// (R, in), w (E out, in) of x's type: the experts' matrices one after the other, y (R, out -
    /// first_column or fewer). rows (E), in memory of the host: the rows of each expert; other rows
    /// of y do not change. A row has the bits that linear_forward() gives for the expert's rows.
    void (*grouped_linear_forward)(Context& ctx, ConstTensor x, ConstTensor w,
                                   std::span<const RowRange> rows, int64_t first_column, Tensor y);
    /// dx = dy w_e in the rows of every expert e. dy (R, out), dx (R, in); else as
    /// grouped_linear_forward(). w may be a view of some columns; dx then has these.
    void (*grouped_linear_backward_input)(Context& ctx, ConstTensor dy, ConstTensor w,
                                          std::span<const RowRange> rows, Tensor dx);
    /// dw_e = dy_e^T x_e over the rows of every expert e. dy (R, out), x (R, in) of dy's type, dw
    /// (E out, in) fp32. Without `accumulate` the gradient of an expert without rows becomes 0.
    void (*grouped_linear_backward_weight)(Context& ctx, ConstTensor dy, ConstTensor x,
                                           std::span<const RowRange> rows, Tensor dw,
                                           bool accumulate);

    // Rows, and losses of rows: for models whose output is a few numbers per sequence or token. c
    // is the number of columns, at least 1 where a loss is made; there may be no rows. What belongs
    // to tokens (Microbatch::labels, loss_gradient, columns) is read at token i stride for row i:
    // stride 1 where every token has a row, seq_length where every sequence has one.

    /// y[i] = mean of the rows i count .. (i + 1) count - 1 of x, added in this order in fp32,
    /// divided by count and rounded once. x (n count, c), y (n, c) of x's type, count >= 1. The
    /// same bits on every device.
    void (*mean_rows)(Context& ctx, ConstTensor x, int64_t count, Tensor y);
    /// The gradient of mean_rows(): dx[r] = dy[r / count] / count, in fp32. dy (n, c), dx (n count,
    /// c) of dy's type, count >= 1. The same bits on every device.
    void (*spread_rows)(Context& ctx, ConstTensor dy, int64_t count, Tensor dx);
    /// y[n, j] = columns[j tokens + n], rounded to y's type: numbers of tokens, one column after
    /// the other, as rows. columns (c, tokens), y (tokens, c).
    void (*columns_to_rows)(Context& ctx, std::span<const float> columns, int64_t tokens, Tensor y);
    /// losses[i] = log sum_j exp(logits[i, j]) - logits[i, y_i] with y_i = labels[i stride]; 0 for
    /// a negative label, whose row is not read. logits (n, c), labels (n stride), losses (n, 1)
    /// fp32. y_i < c, which only the host checks; elsewhere the loss of another label is NaN.
    void (*cross_entropy_forward)(Context& ctx, ConstTensor logits, std::span<const int32_t> labels,
                                  int64_t stride, Tensor losses);
    /// dlogits[i, j] = weights[i stride] (softmax(logits[i])_j - [j = y_i]); 0 for a negative
    /// label. weights (n stride); dlogits (n, c) of logits' type, which it may alias; else as
    /// cross_entropy_forward().
    void (*cross_entropy_backward)(Context& ctx, ConstTensor logits,
                                   std::span<const int32_t> labels, std::span<const float> weights,
                                   int64_t stride, Tensor dlogits);
    /// losses[i] = mean over j of (x[i, j] - t_ij)^2 with t_ij = targets[j n stride + i stride]. x
    /// (n, c), targets (c, n stride): one column after the other, losses (n, 1) fp32.
    void (*squared_error_forward)(Context& ctx, ConstTensor x, std::span<const float> targets,
                                  int64_t stride, Tensor losses);
    /// dx[i, j] = weights[i stride] 2 (x[i, j] - t_ij) / c. weights (n stride); dx (n, c) of x's
    /// type, which it may alias; else as squared_error_forward().
    void (*squared_error_backward)(Context& ctx, ConstTensor x, std::span<const float> targets,
                                   std::span<const float> weights, int64_t stride, Tensor dx);
    /// *total += sum over i of losses[i] |weights[i stride]|, in double, in an order that depends
    /// on n only. losses (n, 1) fp32, weights (n stride).
    void (*add_weighted_losses)(Context& ctx, ConstTensor losses, std::span<const float> weights,
                                int64_t stride, double* total);

    // The output layer of one vocabulary shard, by the method of vocabulary_loss.hpp. x, w and
    // exp_logits share one type; everything else is fp32. A shard without rows is legal everywhere:
    // w, exp_logits and dw then have 0 rows or columns and may be empty views. The host checks the
    // labels; for other devices the code that uploads them must call check_labels().

    /// Bytes of vocabulary_score()'s workspace for a shard of `rows` rows.
    int64_t (*vocabulary_score_workspace_bytes)(int64_t tokens, int64_t rows, DType type);
    /// S: exp_logits (N, v) = exp(z - m) dz/d(x w) with the label's entry set to 0, and statistics
    /// (N, statistics_columns(options.records)). x (N, h), w (v, h), z = x w^T, soft-capped,
    /// divided by the temperature T and never rounded to bf16; -infinity where it is not allowed.
    /// Without a cap dz/d(x w) counts as 1, with one as 1 - (z T / c)^2: the factor 1 / T is in c_n
    /// and d_n. `logits` (N, v) fp32: z itself, which label_ranks() needs; empty: it is not kept.
    ///
    /// m is a reference point near max_j z_j: the maximum over the first columns, raised only when
    /// a later logit exceeds it by more than 30. So exponentials may exceed 1 (by far less than
    /// their type holds), and one pass over the columns suffices; m + log a and m + log e do not
    /// depend on m. a sums the exponentials before they are rounded to the type of `exp_logits`.
    void (*vocabulary_score)(Context& ctx, ConstTensor x, ConstTensor w,
                             std::span<const int32_t> labels, const VocabularyShard& shard,
                             const LossOptions& options, Tensor exp_logits, Tensor statistics,
                             Tensor logits, std::span<std::byte> workspace);
    /// U: u (N, h) = exp_logits (N, v) times w (v, h).
    void (*vocabulary_input_product)(Context& ctx, ConstTensor exp_logits, ConstTensor w, Tensor u);
    /// The row factors of this shard from the statistics of all K shards, by_shard (K N,
    /// statistics_columns(options.records)), shard by shard, folded in this order so that every
    /// rank gets the same bits of M, A and records:
    ///
    ///     factors (N, 2): c_n = g_n (1 + 2 z_loss log Z) exp(m - M) / A / T
    ///                     d_n = (c_n exp(z_y - m) - g_n (1 - eps)) / T where `mine` owns the
    ///                     label, else 0; with soft-capped logits times 1 - (z_y T / c)^2
    ///     records (R N): the records of `options`, R numbers for every token, one after the
    ///                    other, each of N tokens, not weighted by g; 0 for ignored labels; may be
    ///                    empty. Those of label_rank stay as they are: label_ranks() makes them
    ///
    /// g_n is d(total loss) / d(loss_n). In evaluation `factors` is empty: only records are formed.
    void (*combine_statistics)(Context& ctx, ConstTensor by_shard, std::span<const int32_t> labels,
                               const TokenGradients& gradients, const VocabularyShard& mine,
                               int my_shard, const LossOptions& options, Tensor factors,
                               std::span<float> records);
    /// counts (N): how many rows of this shard come before the label or are it, by (logit
    /// descending, row ascending); 0 for ignored labels. Rows that are not allowed do not count.
    /// `logits`: of vocabulary_score(); by_shard as for combine_statistics(). The sum over all
    /// shards is the record label_rank.
    void (*label_ranks)(Context& ctx, ConstTensor logits, ConstTensor by_shard,
                        std::span<const int32_t> labels, const VocabularyShard& shard,
                        std::span<float> counts);
    /// Where a loss depends on the entropy, factors (N, 4) also have h and m, and c is made with
    /// them; with eta_n = d(total loss) / d(entropy), H the entropy, and s_y the slope of the
    /// label's soft cap, 1 without one:
    ///
    ///     c_n = exp(m - M) / A (g_n - eta_n (m - log Z + H)) / T,  h_n = -exp(m - M) / A eta_n / T
    ///     d_n = (-g_n (1 - p_y) - eta_n p_y (log p_y + H)) s_y / T
    ///
    /// This makes exp_logits (N, v) = e (c + h log e) s in place, 0 where e is 0, and c = 1: the
    /// gradient of the logits without the label's part, for the products that follow. With a soft
    /// cap s = 1 - ((m + log e) T / cap)^2, and `options` have caps_later.
    void (*weigh_by_entropy)(Context& ctx, const LossOptions& options, Tensor exp_logits,
                             Tensor factors);
    /// The clipped objective of policy_loss.hpp for N tokens: loss, g_n d loss_n / d(-logprob) and
    /// g_n d loss_n / d entropy; 0 for ignored labels. logprob, labels, g and outputs (N); columns
    /// (C, N) with C of `options` or more; entropy and entropy_gradient (N) if the entropy's
    /// coefficient is not 0, else empty.
    void (*policy_loss)(Context& ctx, const PolicyLossOptions& options,
                        std::span<const int32_t> labels, std::span<const float> g,
                        std::span<const float> logprob, std::span<const float> entropy,
                        std::span<const float> columns, std::span<float> loss,
                        std::span<float> gradient, std::span<float> entropy_gradient);
    /// Logits of the tokens that a list names, of this shard: logits (N, k), soft-capped, over the
    /// temperature, -infinity where they are not allowed, 0 where another shard owns them or the id
    /// is negative. x (N, h), w (v, h), ids (k, N) fp32.
    void (*listed_logits)(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor ids,
                          const VocabularyShard& shard, const LossOptions& options, Tensor logits);
    /// The loss of kernels/distillation_token.hpp for N tokens, from listed_logits() of all shards,
    /// shard by shard (K N, k), log p of the label and log Z (N), and the teacher's log p (k, N),
    /// of which -infinity is no entry: loss_n; the weight of the cross-entropy's gradient; and
    /// slopes (N, 1 + k) by x w of the label and of the list, which the two operators below add.
    /// All are 0 for ignored labels. `layer`: as in listed_logits().
    void (*distillation_loss)(Context& ctx, const DistillationOptions& options,
                              const LossOptions& layer, ConstTensor by_shard,
                              std::span<const int32_t> labels, std::span<const float> g,
                              std::span<const float> logprob, std::span<const float> log_z,
                              ConstTensor teacher, std::span<float> loss, std::span<float> gradient,
                              Tensor slopes);
    /// u_n (N, h) += slopes[n, 0] W_{y_n} + sum over i of slopes[n, 1 + i] W_{ids[i, n]}, of those
    /// that this shard owns.
    void (*listed_input_gradient)(Context& ctx, ConstTensor slopes, ConstTensor w,
                                  std::span<const int32_t> labels, ConstTensor ids,
                                  const VocabularyShard& shard, Tensor u);
    /// Rows y_n and ids[i, n] of dw (v, h) += slopes[n, 0] x_n and slopes[n, 1 + i] x_n, in
    /// ascending order of n, then of i.
    void (*listed_weight_gradient)(Context& ctx, ConstTensor slopes, ConstTensor x,
                                   std::span<const int32_t> labels, ConstTensor ids,
                                   const VocabularyShard& shard, Tensor dw);
    /// Bytes of vocabulary_input_gradient()'s workspace, needed with label smoothing only.
    int64_t (*vocabulary_input_gradient_workspace_bytes)(int64_t hidden);
    /// This shard's addend of dX, in place: u_n = c_n u_n + d_n W_{y_n} - g_n eps/V sum_j W_j.
    void (*vocabulary_input_gradient)(Context& ctx, Tensor u, ConstTensor factors, ConstTensor w,
                                      std::span<const int32_t> labels, std::span<const float> g,
                                      const VocabularyShard& shard, const LossOptions& options,
                                      std::span<std::byte> workspace);
    /// Bytes of vocabulary_weight_gradient()'s workspace.
    int64_t (*vocabulary_weight_gradient_workspace_bytes)(int64_t tokens, int64_t hidden,
                                                          DType type);
    /// dw (v, h) = or += exp_logits^T (c x), with c x rounded to the type of x; then every row -=
    /// eps/V sum_n g_n x_n; then row y_n += d_n x_n, in ascending order of n.
    void (*vocabulary_weight_gradient)(Context& ctx, ConstTensor x, ConstTensor exp_logits,
                                       ConstTensor factors, std::span<const int32_t> labels,
                                       std::span<const float> g, const VocabularyShard& shard,
                                       const LossOptions& options, Tensor dw, bool accumulate,
                                       std::span<std::byte> workspace);

    // Once per step.

    /// *sum = sum over i of values[i] weights[i], in double, in an order that depends only on their
    /// number.
    void (*weighted_sum)(Context& ctx, std::span<const float> values,
                         std::span<const float> weights, double* sum);
    /// *sum += values, in order.
    void (*add_up)(Context& ctx, std::span<const double> values, double* sum);
    /// *sum += squares of all elements of an fp32 tensor, in double, in an order that depends on
    /// its shape only: not on the row stride. NaN or infinity if any element is.
    void (*sum_of_squares)(Context& ctx, ConstTensor values, double* sum);
    /// `reports`: `entries` doubles of each rank: `squares` sums of squares, the loss, 1 for a
    /// request to stop, then possibly more. Adds them over the ranks in order and fills in the
    /// second half of `scalars`.
    void (*finish_report)(Context& ctx, std::span<const double> reports, int64_t entries,
                          int64_t squares, StepScalars* scalars);
    /// sums[i] = entry first + i of the reports (as in finish_report()), added over the ranks in
    /// order.
    void (*sum_reports)(Context& ctx, std::span<const double> reports, int64_t entries,
                        int64_t first, std::span<double> sums);
    /// bias (1, E) fp32: += rate for experts whose load is less than the mean, -= rate for those
    /// whose load is greater (Wang et al. 2024, arXiv 2408.15664); nothing if !scalars->update.
    /// loads (E): whole numbers.
    void (*update_correction_bias)(Context& ctx, std::span<const double> loads, float rate,
                                   const StepScalars* scalars, Tensor bias);
    /// One step of AdamW with decoupled weight decay, as torch.optim.AdamW does it (Loshchilov and
    /// Hutter 2019), on every tensor; nothing if !scalars->update:
    ///
    ///     g  = gradient_scale gradient
    ///     p -= lr weight_decay p                (master)
    ///     m  = beta1 m + (1 - beta1) g          (exp_avg)
    ///     v  = beta2 v + (1 - beta2) g^2        (exp_avg_sq)
    ///     p -= lr (m / bias_correction1) / (sqrt(v / bias_correction2) + epsilon)
    ///
    /// One pass over memory, 28 bytes per parameter (30 with `weight`). Elementwise, so bits do not
    /// depend on how parameters are cut into tensors and calls.
    void (*adamw)(Context& ctx, std::span<const AdamWTensor> tensors,
                  const AdamWCoefficients& coefficients, const StepScalars* scalars);
};

}  // namespace vocabpipe::kernels

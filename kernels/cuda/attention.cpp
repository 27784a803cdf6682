// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN where it applies; by our own kernels elsewhere, for documents in a sequence,
// for a part of its queries, and where it is not causal.
#include "kernels/cuda/operators.hpp"

#include <algorithm>
#include <string>

#include "kernels/attention_checks.hpp"
#include "kernels/check.hpp"
#include "kernels/cuda/attention_cudnn.hpp"
#include "kernels/cuda/attention_kernels.hpp"
#include "kernels/cuda/engine.hpp"
#include "kernels/cuda/launch_errors.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

/// The kernels count tokens of a sequence in int, up to a tile beyond its end, and queries that are
/// not causal from its last key on.
constexpr int64_t kLongestSequence = int64_t{1} << 30;

void require_arguments(ConstTensor q, ConstTensor kv, const AttentionShape& shape,
                       std::span<const int32_t> first_visible, ConstTensor out,
                       ConstTensor log_sum_exp, std::span<std::byte> workspace) {
    require_attention(q, kv, shape, first_visible, out, log_sum_exp);
    require(shape.seq_length + (shape.causal ? 0 : shape.query_count()) <= kLongestSequence,
            "a sequence of at most 2^30 tokens, or keys and queries");
    require(static_cast<int64_t>(workspace.size()) >= attention_workspace_bytes(shape, q.dtype, 1),
            "workspace of attention_workspace_bytes()");
}

void end_cudnn_attention(CallSite ctx, const AttentionShape& shape) {
    ++ctx.cuda().counters().cudnn_attentions;
    check_call(ctx, [&] {
        return "cuDNN's attention of " + std::to_string(shape.sequences) + " sequences of " +
               std::to_string(shape.seq_length) + " tokens, " + std::to_string(shape.heads) +
               " heads of " + std::to_string(shape.head_size);
    });
}

}  // namespace

/// 4 bytes per query and its heads, or cuDNN's need, if that is more.
int64_t attention_workspace_bytes(AttentionShape shape, DType type, int) {
    return std::max(attention_backward_bytes(shape), cudnn_attention_workspace_bytes(shape, type));
}

void causal_attention_forward(Context& ctx, ConstTensor q, ConstTensor kv, AttentionShape shape,
                              std::span<const int32_t> first_visible, Tensor out,
                              Tensor log_sum_exp, std::span<std::byte> workspace) {
    require_arguments(q, kv, shape, first_visible, out, log_sum_exp, workspace);
    if (out.size() == 0) return;
    if (first_visible.empty() &&
        try_cudnn_attention_forward(ctx, q, kv, shape, out, log_sum_exp, workspace)) {
        end_cudnn_attention(ctx, shape);
        return;
    }
    ++ctx.cuda().counters().own_attentions;
    attention_forward(ctx, q, kv, shape, first_visible, out, log_sum_exp);
}

void causal_attention_backward(Context& ctx, ConstTensor dout, ConstTensor q, ConstTensor kv,
                               ConstTensor out, ConstTensor log_sum_exp, AttentionShape shape,
                               std::span<const int32_t> first_visible, Tensor dq, Tensor dkv,
                               std::span<std::byte> workspace) {
    require_arguments(q, kv, shape, first_visible, out, log_sum_exp, workspace);
    require_attention_gradients(dout, q, kv, out, dq, dkv);
    if (out.size() == 0) return;
    if (first_visible.empty() && try_cudnn_attention_backward(ctx, dout, q, kv, out, log_sum_exp,
                                                              shape, dq, dkv, workspace)) {
        if (ctx.cuda().attention_may_vary()) ++ctx.cuda().counters().varying_attentions;
        end_cudnn_attention(ctx, shape);
        return;
    }
    ++ctx.cuda().counters().own_attentions;
    attention_backward(ctx, dout, q, kv, out, log_sum_exp, shape, first_visible, dq, dkv,
                       workspace);
}

}  // namespace vocabpipe::kernels::cuda

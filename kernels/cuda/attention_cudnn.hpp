// SPDX-License-Identifier: Apache-2.0
// Attention through cuDNN, in builds with VOCABPIPE_ENABLE_CUDNN; in others it never applies. Not
// run on a GPU yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/call_site.hpp"
#include "vocabpipe/attention_shape.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::cuda {

/// Plans of cuDNN, kept in Engine::State.
class CudnnAttention;

#ifdef VOCABPIPE_HAS_CUDNN

/// Bytes of workspace without which the functions below do not apply; 0 where they never do: other
/// types than bf16, other head sizes than multiples of 8 up to 256, sequences of one token, or so
/// long that the deterministic backward pass of the query heads of one key head goes beyond
/// kCudnnScoreBytes. Masks of documents are not cuDNN's either: their bounds are known to the
/// device only, and its ragged layouts want the number of documents on the host.
[[nodiscard]] int64_t cudnn_attention_workspace_bytes(AttentionShape shape, DType type);

/// causal_attention_forward() by cuDNN. False, and nothing done, where
/// it does not apply: see above, or unaligned tensors, or cuDNN does not support the graph on this
/// GPU. Throws DeviceError if cuDNN fails.
[[nodiscard]] bool try_cudnn_attention_forward(CallSite ctx, ConstTensor qkv, AttentionShape shape,
                                               Tensor out, Tensor log_sum_exp,
                                               std::span<std::byte> workspace);

/// causal_attention_backward() by cuDNN's deterministic algorithm, unless the engine lets attention
/// vary: then in one call where the workspace is enough, and without score gradients. Where query
/// heads share keys it rounds the dk and dv of each to bf16 before it adds them up.
[[nodiscard]] bool try_cudnn_attention_backward(CallSite ctx, ConstTensor dout, ConstTensor qkv,
                                                ConstTensor out, ConstTensor log_sum_exp,
                                                AttentionShape shape, Tensor dqkv,
                                                std::span<std::byte> workspace);

#else

[[nodiscard]] inline int64_t cudnn_attention_workspace_bytes(AttentionShape, DType) {
    return 0;
}
[[nodiscard]] inline bool try_cudnn_attention_forward(CallSite, ConstTensor, AttentionShape, Tensor,
                                                      Tensor, std::span<std::byte>) {
    return false;
}
[[nodiscard]] inline bool try_cudnn_attention_backward(CallSite, ConstTensor, ConstTensor,
                                                       ConstTensor, ConstTensor, AttentionShape,
                                                       Tensor, std::span<std::byte>) {
    return false;
}

#endif

}  // namespace vocabpipe::kernels::cuda

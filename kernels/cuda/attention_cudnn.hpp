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

/// cuDNN's plans, kept in Engine::State.
class CudnnAttention;

#ifdef VOCABPIPE_HAS_CUDNN

/// Bytes of workspace that the functions below need; 0 where they never apply: for types other than
/// bf16, head sizes other than multiples of 8 up to 256, values of another size than keys,
/// sequences of one token, and sequences so long that the deterministic backward pass of the query
/// heads of one key head exceeds kCudnnScoreBytes. cuDNN does not get masks of documents either:
/// only the device knows their bounds, and cuDNN's ragged layouts need the number of documents on
/// the host. Nor does it get a part of the queries: its masks aligned to the bottom right corner
/// were never run on a GPU.
[[nodiscard]] int64_t cudnn_attention_workspace_bytes(AttentionShape shape, DType type);

/// causal_attention_forward() by cuDNN. Returns false, with nothing done, where it does not apply
/// (see above), tensors are unaligned, or cuDNN does not support the graph on this GPU. Throws
/// DeviceError if cuDNN fails.
[[nodiscard]] bool try_cudnn_attention_forward(CallSite ctx, ConstTensor q, ConstTensor kv,
                                               AttentionShape shape, Tensor out, Tensor log_sum_exp,
                                               std::span<std::byte> workspace);

/// causal_attention_backward() by cuDNN's deterministic algorithm. If the engine lets attention
/// vary and the workspace is large enough: in one call, without score gradients in memory. Where
/// query heads share keys it rounds the dk and dv of each to bf16 before it adds them up.
[[nodiscard]] bool try_cudnn_attention_backward(CallSite ctx, ConstTensor dout, ConstTensor q,
                                                ConstTensor kv, ConstTensor out,
                                                ConstTensor log_sum_exp, AttentionShape shape,
                                                Tensor dq, Tensor dkv,
                                                std::span<std::byte> workspace);

#else

[[nodiscard]] inline int64_t cudnn_attention_workspace_bytes(AttentionShape, DType) {
    return 0;
}
[[nodiscard]] inline bool try_cudnn_attention_forward(CallSite, ConstTensor, ConstTensor,
                                                      AttentionShape, Tensor, Tensor,
                                                      std::span<std::byte>) {
    return false;
}
[[nodiscard]] inline bool try_cudnn_attention_backward(CallSite, ConstTensor, ConstTensor,
                                                       ConstTensor, ConstTensor, ConstTensor,
                                                       AttentionShape, Tensor, Tensor,
                                                       std::span<std::byte>) {
    return false;
}

#endif

}  // namespace vocabpipe::kernels::cuda

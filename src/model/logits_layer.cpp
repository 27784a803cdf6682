// SPDX-License-Identifier: Apache-2.0
#include "src/model/logits_layer.hpp"

#include "src/model/views.hpp"
#include "vocabpipe/operators.hpp"

namespace vocabpipe {

LogitsLayer::LogitsLayer(Device& device, const Parameter& weight, float softcap, int64_t most)
    : device_(device),
      weight_(weight),
      softcap_(softcap),
      memory_(device.allocate(static_cast<uint64_t>(most * weight.weight.rows) * sizeof(float),
                              "the logits of a token")),
      logits_(static_cast<size_t>(most * weight.weight.rows)) {}

void LogitsLayer::score(Context& ctx, const Microbatch&, ConstTensor x, Tensor, Tensor statistics,
                        Bytes) {
    ctx.operators().logits_forward(ctx, x.row_range(first_, count_), weight_.weight, softcap_,
                                   Tensor(memory_.data(), count_, rows(), DType::fp32));
    // Statistics still go to the other ranks, for a loss that generation does not use.
    ctx.operators().set_zero(ctx, bytes_of<std::byte>(statistics));
}

std::span<const float> LogitsLayer::logits() {
    const std::span<float> made = std::span(logits_).first(static_cast<size_t>(count_ * rows()));
    device_.download(memory_.data(), std::as_writable_bytes(made));
    return made;
}

}  // namespace vocabpipe

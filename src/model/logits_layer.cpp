// SPDX-License-Identifier: Apache-2.0
#include "src/model/logits_layer.hpp"

#include "src/model/views.hpp"
#include "vocabpipe/operators.hpp"

namespace vocabpipe {

LogitsLayer::LogitsLayer(Device& device, const Parameter& weight, float softcap)
    : device_(device),
      weight_(weight),
      softcap_(softcap),
      memory_(device.allocate(static_cast<uint64_t>(weight.weight.rows) * sizeof(float),
                              "the logits of a token")),
      logits_(static_cast<size_t>(weight.weight.rows)) {}

void LogitsLayer::score(Context& ctx, const Microbatch&, ConstTensor x, Tensor, Tensor statistics,
                        Bytes) {
    const int64_t rows = weight_.weight.rows;
    ctx.operators().logits_forward(ctx, x.row_range(token_, 1), weight_.weight, softcap_,
                                   Tensor(memory_.data(), 1, rows, DType::fp32));
    // Statistics still go to the other ranks, for a loss that generation does not use.
    ctx.operators().set_zero(ctx, bytes_of<std::byte>(statistics));
}

std::span<const float> LogitsLayer::logits() {
    device_.download(memory_.data(), std::as_writable_bytes(std::span(logits_)));
    return logits_;
}

}  // namespace vocabpipe

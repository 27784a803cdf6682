// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/attention_memory.hpp"

#include "kernels/host/attention_panels.hpp"

namespace vocabpipe::kernels::host {

int64_t attention_panels_bytes(int64_t length, int64_t head_size, DType type) {
    return type == DType::bf16 ? Sizes<DType::bf16>{length, head_size}.memory(nullptr).bytes
                               : Sizes<DType::fp32>{length, head_size}.memory(nullptr).bytes;
}

}  // namespace vocabpipe::kernels::host

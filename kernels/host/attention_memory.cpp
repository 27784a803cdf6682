// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/attention_memory.hpp"

#include "kernels/host/attention_panels.hpp"

namespace vocabpipe::kernels::host {

int64_t attention_panels_bytes(int64_t length, int64_t head_size, int64_t value_size, DType type) {
    const auto bytes = [&]<DType of>() {
        return Sizes<of>{length, {head_size}, {value_size}}.memory(nullptr).bytes;
    };
    return type == DType::bf16 ? bytes.template operator()<DType::bf16>()
                               : bytes.template operator()<DType::fp32>();
}

}  // namespace vocabpipe::kernels::host

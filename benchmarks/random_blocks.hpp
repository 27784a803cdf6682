// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/bf16.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::bench {

/// Fills a dense fp32 or bf16 matrix on a device with values of `next()`: repeats one block, whose
/// length is prime so that no two rows agree. `upload(from, bytes, offset)` copies to the matrix.
template <typename Next, typename Upload>
void fill_by_blocks(ConstTensor matrix, Next next, Upload upload) {
    constexpr int64_t kBlock = 1048573;
    const auto count = static_cast<size_t>(std::min(kBlock, matrix.size()));
    std::vector<float> wide(count);
    std::vector<kernels::Bf16> narrow(count);
    for (size_t i = 0; i < count; ++i) {
        wide[i] = next();
        narrow[i] = kernels::to_bf16(wide[i]);
    }
    const bool bf16 = matrix.dtype == DType::bf16;
    const void* const from = bf16 ? static_cast<const void*>(narrow.data()) : wide.data();
    for (int64_t at = 0; at < matrix.size(); at += kBlock) {
        const int64_t now = std::min(kBlock, matrix.size() - at);
        upload(from, static_cast<size_t>(now * size_of(matrix.dtype)),
               static_cast<size_t>(at * size_of(matrix.dtype)));
    }
}

}  // namespace vocabpipe::bench

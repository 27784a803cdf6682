// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/random.hpp"

#include "kernels/check.hpp"
#include "kernels/counter_rng.hpp"

namespace vocabpipe::kernels::reference {

void fill_normal(Tensor out, uint64_t seed, uint64_t parameter_id, int64_t first_element,
                 float std) {
    require(out.dtype != DType::bf16, "an fp32 or fp64 tensor");
    for (int64_t row = 0; row < out.rows; ++row) {
        for (int64_t col = 0; col < out.cols; ++col) {
            const auto element = static_cast<uint64_t>(first_element + row * out.cols + col);
            const double value = std * normal_block(seed, parameter_id, element / 4)[element % 4];
            if (out.dtype == DType::fp64) {
                out.as<double>()[row * out.stride + col] = value;
            } else {
                out.as<float>()[row * out.stride + col] = static_cast<float>(value);
            }
        }
    }
}

}  // namespace vocabpipe::kernels::reference

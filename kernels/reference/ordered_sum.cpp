// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include "kernels/bf16.hpp"
#include "kernels/check.hpp"

namespace vocabpipe::kernels::reference {

void ordered_sum(Context& /*ctx*/, ConstTensor blocks, int64_t count, int64_t own, Tensor out) {
    require(count >= 1, "at least one block");
    require(has_shape(blocks, count * out.rows, out.cols), "blocks of shape (count rows, cols)");
    require(own < count && (own < 0 || blocks.dtype == out.dtype), "an own block of one type");
    if (blocks.dtype == DType::fp64) {
        require(out.dtype == DType::fp64, "fp64 out of fp64 blocks");
        for (int64_t row = 0; row < out.rows; ++row) {
            for (int64_t col = 0; col < out.cols; ++col) {
                double sum = 0;
                for (int64_t block = 0; block < count; ++block) {
                    const int64_t at = (block * out.rows + row) * blocks.stride + col;
                    const double addend = block == own ? out.as<double>()[row * out.stride + col]
                                                       : blocks.as<double>()[at];
                    sum = block == 0 ? addend : sum + addend;
                }
                out.as<double>()[row * out.stride + col] = sum;
            }
        }
        return;
    }
    with_type(blocks.dtype, [&]<typename In>() {
        with_type(out.dtype, [&]<typename Out>() {
            for (int64_t row = 0; row < out.rows; ++row) {
                for (int64_t col = 0; col < out.cols; ++col) {
                    float sum = 0;
                    for (int64_t block = 0; block < count; ++block) {
                        const int64_t at = (block * out.rows + row) * blocks.stride + col;
                        const float addend = block == own
                                                 ? to_float(out.as<Out>()[row * out.stride + col])
                                                 : to_float(blocks.as<In>()[at]);
                        sum = block == 0 ? addend : sum + addend;
                    }
                    out.as<Out>()[row * out.stride + col] = from_float<Out>(sum);
                }
            }
        });
    });
}

}  // namespace vocabpipe::kernels::reference

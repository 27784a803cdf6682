// SPDX-License-Identifier: Apache-2.0
#include "kernels/check.hpp"
#include "kernels/cuda/column_reduce.cuh"
#include "kernels/cuda/column_sums.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

template <typename T, int kCount>
struct Elements {
    const T* data;
    int64_t stride;

    __device__ void add(int64_t row, int64_t col, Vector<kCount>& sum) const {
        Vector<kCount> values;
        values.load(data + row * stride + col);
        for (int i = 0; i < kCount; ++i) sum[i] += values[i];
    }
};

}  // namespace

void column_sums(CallSite ctx, ConstTensor x, Tensor sums, bool accumulate) {
    require(has_shape(sums, 1, x.cols) && sums.dtype == DType::fp32, "sums (1, cols) fp32");
    const ColumnTotals<1> totals{{sums.as<float>()}, accumulate};
    with_element_type(x.dtype, [&]<typename T>() {
        with_vectors(
            [&]<int kCount>() {
                column_reduce<kCount>(ctx, Elements<T, kCount>{x.as<T>(), x.stride}, x.rows, x.cols,
                                      totals);
            },
            x);
    });
}

}  // namespace vocabpipe::kernels::cuda

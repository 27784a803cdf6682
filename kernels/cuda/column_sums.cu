// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/column_reduce.cuh"
#include "kernels/cuda/column_sums.hpp"
#include "kernels/cuda/operators.hpp"
#include "kernels/row_checks.hpp"

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

void sum_columns(CallSite ctx, ConstTensor x, Tensor sums, bool accumulate) {
    require_column_sums(x, sums);
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

void column_sums(Context& ctx, ConstTensor x, Tensor sums, bool accumulate) {
    sum_columns(ctx, x, sums, accumulate);
}

}  // namespace vocabpipe::kernels::cuda

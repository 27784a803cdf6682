// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>

#include "kernels/bf16.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/row_checks.hpp"

namespace vocabpipe::kernels::host {

void column_sums(Context& ctx, ConstTensor x, Tensor sums, bool accumulate) {
    require_column_sums(x, sums);
    with_type(x.dtype, [&]<typename T>() {
        parallel_ranges(ctx, x.cols, x.size(), [&](int64_t begin, int64_t end) {
            float* out = sums.as<float>();
            if (!accumulate) std::fill(out + begin, out + end, 0.0F);
            int64_t row = 0;
            // Four rows at a time: the sums are loaded and stored once for all of them.
            for (; row + 4 <= x.rows; row += 4) {
                const T* r0 = x.as<T>() + row * x.stride;
                const T* r1 = r0 + x.stride;
                const T* r2 = r1 + x.stride;
                const T* r3 = r2 + x.stride;
#pragma omp simd
                for (int64_t j = begin; j < end; ++j) {
                    out[j] +=
                        (to_float(r0[j]) + to_float(r1[j])) + (to_float(r2[j]) + to_float(r3[j]));
                }
            }
            for (; row < x.rows; ++row) {
                const T* r = x.as<T>() + row * x.stride;
#pragma omp simd
                for (int64_t j = begin; j < end; ++j) out[j] += to_float(r[j]);
            }
        });
    });
}

}  // namespace vocabpipe::kernels::host

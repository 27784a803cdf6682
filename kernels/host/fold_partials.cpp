// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>
#include <array>

#include "kernels/bf16.hpp"
#include "kernels/fold_checks.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

void fold_partials(Context& ctx, ConstTensor partials, int64_t count, ConstTensor bias,
                   ConstTensor residual, Tensor out) {
    check_fold_partials(partials, count, bias, residual, out);
    constexpr int64_t kStrip = 1024;  // sums that stay in the first-level cache
    with_type(out.dtype, [&]<typename T>() {
        parallel_ranges(ctx, out.rows, partials.size(), [&](int64_t begin, int64_t end) {
            std::array<float, kStrip> sum;
            for (int64_t row = begin; row < end; ++row) {
                for (int64_t first = 0; first < out.cols; first += kStrip) {
                    const int64_t width = std::min(kStrip, out.cols - first);
                    const auto add = [&](const T* from) {
#pragma omp simd
                        for (int64_t i = 0; i < width; ++i) sum[i] += to_float(from[i]);
                    };
                    const T* in = partials.as<T>() + row * partials.stride + first;
#pragma omp simd
                    for (int64_t i = 0; i < width; ++i) sum[i] = to_float(in[i]);
                    for (int64_t member = 1; member < count; ++member) {
                        in += out.rows * partials.stride;
                        add(in);
                    }
                    if (bias) add(bias.as<T>() + first);
                    if (residual) add(residual.as<T>() + row * residual.stride + first);
                    T* const to = out.as<T>() + row * out.stride + first;
#pragma omp simd
                    for (int64_t i = 0; i < width; ++i) to[i] = from_float<T>(sum[i]);
                }
            }
        });
    });
}

}  // namespace vocabpipe::kernels::host

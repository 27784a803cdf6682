// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/row_product.hpp"

#include <algorithm>

#include "kernels/bf16.hpp"
#include "kernels/host/dot.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// Elements of w read between polls of communication: about a millisecond.
constexpr int64_t kElementsPerPoll = int64_t{4} << 20;

template <typename T, typename B, typename Y>
void rows(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias, Tensor y) {
    const int64_t in = x.cols;
    const int64_t part = std::max<int64_t>(kElementsPerPoll / std::max<int64_t>(in, 1), 1);
    const auto biased = [&](float product, int64_t j) {
        return from_float<Y>(bias ? product + to_float(bias.as<B>()[j]) : product);
    };
    for (int64_t first = 0; first < w.rows; first += part) {
        if (first > 0) ctx.poll();
        const int64_t count = std::min(part, w.rows - first);
        parallel_ranges(ctx, count, x.rows * count * in, [&](int64_t begin, int64_t end) {
            for (int64_t j = first + begin; j < first + end; ++j) {
                const T* const row = w.as<T>() + j * w.stride;
                for (int64_t n = 0; n < x.rows; ++n) {
                    y.as<Y>()[n * y.stride + j] = biased(dot(x.as<T>() + n * x.stride, row, in), j);
                }
            }
        });
    }
}

}  // namespace

void row_product(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor bias, Tensor y) {
    with_type(x.dtype, [&]<typename T>() {
        with_type(bias ? bias.dtype : x.dtype, [&]<typename B>() {
            with_type(y.dtype, [&]<typename Y>() { rows<T, B, Y>(ctx, x, w, bias, y); });
        });
    });
}

}  // namespace vocabpipe::kernels::host

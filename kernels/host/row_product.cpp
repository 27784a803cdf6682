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
    for (int64_t first = 0; first < w.rows; first += part) {
        if (first > 0) ctx.poll();
        const int64_t count = std::min(part, w.rows - first);
        parallel_ranges(ctx, count, count * in, [&](int64_t begin, int64_t end) {
            for (int64_t j = first + begin; j < first + end; ++j) {
                const float product = dot(x.as<T>(), w.as<T>() + j * w.stride, in);
                y.as<Y>()[j] = from_float<Y>(bias ? product + to_float(bias.as<B>()[j]) : product);
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

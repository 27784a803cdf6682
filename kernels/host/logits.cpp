// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>

#include "kernels/bf16.hpp"
#include "kernels/host/dot.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/softcap.hpp"
#include "kernels/vocabulary_checks.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// Rows of w read between polls of communication.
constexpr int64_t kRowsPerPoll = 4096;

}  // namespace

void logits_forward(Context& ctx, ConstTensor x, ConstTensor w, float softcap, Tensor z) {
    require_logits(x, w, softcap, z);
    const int64_t h = x.cols;
    with_type(x.dtype, [&]<typename T>() {
        for (int64_t first = 0; first < w.rows; first += kRowsPerPoll) {
            const int64_t rows = std::min(kRowsPerPoll, w.rows - first);
            parallel_ranges(ctx, rows, rows * h, [&](int64_t begin, int64_t end) {
                for (int64_t j = first + begin; j < first + end; ++j) {
                    float sum = dot(x.as<T>(), w.as<T>() + j * w.stride, h);
                    // One at a time: the same bits wherever a shard begins.
                    if (softcap > 0) soft_cap(&sum, 1, 1.0F, softcap);
                    z.as<float>()[j] = sum;
                }
            });
            ctx.poll();
        }
    });
}

}  // namespace vocabpipe::kernels::host

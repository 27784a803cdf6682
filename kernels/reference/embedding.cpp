// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/operators.hpp"

#include "kernels/reference/elements.hpp"

namespace vocabpipe::kernels::reference {

namespace {

/// Row of the shard, or -1 where the shard does not hold the id.
int64_t local_row(std::span<const int32_t> ids, int64_t n, int64_t first_row, int64_t rows) {
    const int64_t local = ids[static_cast<size_t>(n)] - first_row;
    return local >= 0 && local < rows ? local : -1;
}

}  // namespace

void embedding_gather(Context& ctx, std::span<const int32_t> ids, ConstTensor shard,
                      int64_t first_row, Tensor out) {
    for (int64_t n = 0; n < out.rows; ++n) {
        const int64_t local = local_row(ids, n, first_row, shard.rows);
        for (int64_t i = 0; i < out.cols; ++i) {
            set(out, n, i, local < 0 ? 0.0 : get(shard, local, i));
        }
    }
    ctx.poll();
}

void embedding_scatter_add(Context& ctx, std::span<const int32_t> ids, ConstTensor dy,
                           int64_t first_row, Tensor dshard, bool accumulate) {
    for (int64_t row = 0; row < dshard.rows; ++row) {
        for (int64_t i = 0; i < dshard.cols; ++i) {
            double sum = accumulate ? get(dshard, row, i) : -0.0;
            for (int64_t n = 0; n < dy.rows; ++n) {
                if (local_row(ids, n, first_row, dshard.rows) == row) sum += get(dy, n, i);
            }
            set(dshard, row, i, sum);
        }
    }
    ctx.poll();
}

void embedding_take(Context& ctx, std::span<const std::span<const int32_t>> /*ids*/,
                    int64_t /*first_row*/, Tensor from, Tensor to) {
    for (int64_t row = 0; row < to.rows; ++row) {
        for (int64_t i = 0; i < to.cols; ++i) {
            set(to, row, i, get(to, row, i) + get(from, row, i));
            set(from, row, i, -0.0);
        }
    }
    ctx.poll();
}

void add_positions(Context& ctx, ConstTensor x, ConstTensor wpe, int64_t seq_length,
                   std::span<const int32_t> positions, Tensor y) {
    for (int64_t n = 0; n < x.rows; ++n) {
        const int64_t position =
            positions.empty() ? n % seq_length : positions[static_cast<size_t>(n)];
        for (int64_t i = 0; i < x.cols; ++i) {
            set(y, n, i, get(x, n, i) + get(wpe, position, i));
        }
    }
    ctx.poll();
}

void positions_gradient(Context& ctx, ConstTensor dy, int64_t seq_length, Tensor dwpe,
                        bool accumulate) {
    for (int64_t t = 0; t < dwpe.rows; ++t) {
        for (int64_t i = 0; i < dwpe.cols; ++i) {
            double sum = start(dwpe, t, i, accumulate);
            for (int64_t n = t; t < seq_length && n < dy.rows; n += seq_length)
                sum += get(dy, n, i);
            set(dwpe, t, i, sum);
        }
    }
    ctx.poll();
}

}  // namespace vocabpipe::kernels::reference

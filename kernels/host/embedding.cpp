// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/bf16.hpp"
#include "kernels/embedding_checks.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

void embedding_gather(Context& ctx, std::span<const int32_t> ids, ConstTensor shard,
                      int64_t first_row, Tensor out) {
    require(static_cast<int64_t>(ids.size()) == out.rows, "one id per row of out");
    require(shard.rows == 0 || shard.cols == out.cols, "shard as wide as out");
    with_type(shard.dtype, [&]<typename From>() {
        with_type(out.dtype, [&]<typename To>() {
            parallel_ranges(ctx, out.rows, out.size(), [&](int64_t begin, int64_t end) {
                for (int64_t n = begin; n < end; ++n) {
                    const int64_t local = ids[static_cast<size_t>(n)] - first_row;
                    To* to = out.as<To>() + n * out.stride;
                    if (local < 0 || local >= shard.rows) {
                        std::memset(to, 0, static_cast<size_t>(out.cols) * sizeof(To));
                        continue;
                    }
                    const From* from = shard.as<From>() + local * shard.stride;
#pragma omp simd
                    for (int64_t i = 0; i < out.cols; ++i)
                        to[i] = from_float<To>(to_float(from[i]));
                }
            });
        });
    });
}

void embedding_scatter_add(Context& ctx, std::span<const int32_t> ids, ConstTensor dy,
                           int64_t first_row, Tensor dshard, bool accumulate) {
    require(static_cast<int64_t>(ids.size()) == dy.rows, "one id per row of dy");
    require(dshard.rows == 0 || dshard.cols == dy.cols, "dshard as wide as dy");
    require(dshard.dtype == DType::fp32, "fp32 dshard");
    const auto row_of = [&](int64_t row) { return dshard.as<float>() + row * dshard.stride; };
    if (!accumulate) {
        parallel_ranges(ctx, dshard.rows, dshard.size(), [&](int64_t begin, int64_t end) {
            if (dshard.stride == dshard.cols) {  // as one run, which bypasses the caches
                std::fill_n(row_of(begin), (end - begin) * dshard.cols, -0.0F);
                return;
            }
            for (int64_t row = begin; row < end; ++row)
                std::fill_n(row_of(row), dshard.cols, -0.0F);
        });
    }
    if (dshard.rows == 0) return;
    with_type(dy.dtype, [&]<typename T>() {
        // Split by columns: several rows may carry the same id and add in their order.
        parallel_ranges(ctx, dy.cols, dy.size(), [&](int64_t begin, int64_t end) {
            for (int64_t n = 0; n < dy.rows; ++n) {
                const int64_t local = ids[static_cast<size_t>(n)] - first_row;
                if (local < 0 || local >= dshard.rows) continue;
                const T* from = dy.as<T>() + n * dy.stride;
                float* to = row_of(local);
#pragma omp simd
                for (int64_t i = begin; i < end; ++i) to[i] += to_float(from[i]);
            }
        });
    });
}

void embedding_take(Context& ctx, std::span<const std::span<const int32_t>> ids, int64_t first_row,
                    Tensor from, Tensor to) {
    require(same_shape(from, to) && from.dtype == DType::fp32 && to.dtype == DType::fp32,
            "fp32 from and to of one shape");
    int64_t count = 0;
    for (const auto& some : ids) count += std::ssize(some);
    // Split by columns, like the additions. A repeated id finds -0.0 and adds nothing.
    parallel_ranges(ctx, to.cols, count * to.cols, [&](int64_t begin, int64_t end) {
        for (const auto& some : ids) {
            for (const int32_t id : some) {
                const int64_t local = id - first_row;
                if (local < 0 || local >= to.rows) continue;
                float* const taken = from.as<float>() + local * from.stride;
                float* const sum = to.as<float>() + local * to.stride;
#pragma omp simd
                for (int64_t i = begin; i < end; ++i) {
                    sum[i] += taken[i];
                    taken[i] = -0.0F;
                }
            }
        }
    });
}

void add_positions(Context& ctx, ConstTensor x, ConstTensor wpe, int64_t seq_length,
                   std::span<const int32_t> positions, Tensor y) {
    require_add_positions(x, wpe, seq_length, positions, y);
    require_rows_of_positions(wpe, positions);
    const auto position_of = [&](int64_t n) {
        return positions.empty() ? n % seq_length : int64_t{positions[static_cast<size_t>(n)]};
    };
    with_type(x.dtype, [&]<typename T>() {
        with_type(wpe.dtype, [&]<typename P>() {
            parallel_ranges(ctx, x.rows, x.size(), [&](int64_t begin, int64_t end) {
                for (int64_t n = begin; n < end; ++n) {
                    const T* from = x.as<T>() + n * x.stride;
                    const P* position = wpe.as<P>() + position_of(n) * wpe.stride;
                    T* to = y.as<T>() + n * y.stride;
#pragma omp simd
                    for (int64_t i = 0; i < x.cols; ++i) {
                        to[i] = from_float<T>(to_float(from[i]) + to_float(position[i]));
                    }
                }
            });
        });
    });
}

void positions_gradient(Context& ctx, ConstTensor dy, int64_t seq_length, Tensor dwpe,
                        bool accumulate) {
    require(seq_length > 0 && dwpe.rows >= seq_length, "seq_length rows of dwpe");
    require(dwpe.cols == dy.cols && dwpe.dtype == DType::fp32, "dwpe as wide as dy, fp32");
    with_type(dy.dtype, [&]<typename T>() {
        parallel_ranges(ctx, dwpe.rows, dy.size(), [&](int64_t begin, int64_t end) {
            for (int64_t t = begin; t < end; ++t) {
                float* to = dwpe.as<float>() + t * dwpe.stride;
                if (!accumulate) std::fill(to, to + dwpe.cols, 0.0F);
                if (t >= seq_length) continue;
                for (int64_t n = t; n < dy.rows; n += seq_length) {
                    const T* from = dy.as<T>() + n * dy.stride;
#pragma omp simd
                    for (int64_t i = 0; i < dy.cols; ++i) to[i] += to_float(from[i]);
                }
            }
        });
    });
}

}  // namespace vocabpipe::kernels::host

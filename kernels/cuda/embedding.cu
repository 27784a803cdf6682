// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/row_additions.hpp"
#include "kernels/embedding_checks.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 256;

// One block of threads per row in all kernels here.

template <typename From, typename To, int kCount>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const int32_t* __restrict__ ids, const From* __restrict__ shard,
                  int64_t shard_stride, int64_t shard_rows, int64_t first_row, To* __restrict__ out,
                  int64_t out_stride, int64_t rows, int64_t cols) {
    for (int64_t n = blockIdx.x; n < rows; n += gridDim.x) {
        const int64_t local = ids[n] - first_row;
        const bool held = local >= 0 && local < shard_rows;
        for (int64_t col = int64_t{threadIdx.x} * kCount; col < cols; col += kThreads * kCount) {
            Vector<kCount> values;
            if (held) {
                values.load(shard + local * shard_stride + col);
            } else {
                for (int i = 0; i < kCount; ++i) values[i] = 0;
            }
            values.store(out + n * out_stride + col);
        }
    }
}

template <int kCount>
__global__ void __launch_bounds__(kThreads)
    clear_rows_kernel(float* __restrict__ out, int64_t stride, int64_t rows, int64_t cols) {
    Vector<kCount> zero;
    for (int i = 0; i < kCount; ++i) zero[i] = -0.0F;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        for (int64_t col = int64_t{threadIdx.x} * kCount; col < cols; col += kThreads * kCount) {
            zero.store(out + row * stride + col);
        }
    }
}

template <int kCount>
__global__ void __launch_bounds__(kThreads)
    take_rows_kernel(float* __restrict__ from, int64_t from_stride, float* __restrict__ to,
                     int64_t to_stride, int64_t rows, int64_t cols) {
    Vector<kCount> zero;
    for (int i = 0; i < kCount; ++i) zero[i] = -0.0F;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        for (int64_t col = int64_t{threadIdx.x} * kCount; col < cols; col += kThreads * kCount) {
            Vector<kCount> taken, sum;
            taken.load(from + row * from_stride + col);
            sum.load(to + row * to_stride + col);
            for (int i = 0; i < kCount; ++i) sum[i] += taken[i];
            sum.store(to + row * to_stride + col);
            zero.store(from + row * from_stride + col);
        }
    }
}

/// y may be x. positions: of all rows, or null.
template <typename T, typename P, int kCount>
__global__ void __launch_bounds__(kThreads)
    add_positions_kernel(const T* x, int64_t x_stride, const P* __restrict__ wpe,
                         int64_t wpe_stride, int64_t seq_length,
                         const int32_t* __restrict__ positions, T* y, int64_t y_stride,
                         int64_t rows, int64_t cols) {
    for (int64_t n = blockIdx.x; n < rows; n += gridDim.x) {
        const int64_t at = positions == nullptr ? n % seq_length : int64_t{positions[n]};
        for (int64_t col = int64_t{threadIdx.x} * kCount; col < cols; col += kThreads * kCount) {
            Vector<kCount> sum, position;
            sum.load(x + n * x_stride + col);
            position.load(wpe + at * wpe_stride + col);
            for (int i = 0; i < kCount; ++i) sum[i] += position[i];
            sum.store(y + n * y_stride + col);
        }
    }
}

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    positions_gradient_kernel(const T* __restrict__ dy, int64_t dy_stride, int64_t tokens,
                              int64_t seq_length, float* __restrict__ dwpe, int64_t dwpe_stride,
                              int64_t rows, int64_t cols, bool accumulate) {
    for (int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
        for (int64_t col = int64_t{threadIdx.x} * kCount; col < cols; col += kThreads * kCount) {
            Vector<kCount> sum;
            if (accumulate) {
                sum.load(dwpe + t * dwpe_stride + col);
            } else {
                for (int i = 0; i < kCount; ++i) sum[i] = 0;
            }
            for (int64_t n = t; t < seq_length && n < tokens; n += seq_length) {
                Vector<kCount> next;
                next.load(dy + n * dy_stride + col);
                for (int i = 0; i < kCount; ++i) sum[i] += next[i];
            }
            sum.store(dwpe + t * dwpe_stride + col);
        }
    }
}

}  // namespace

void embedding_gather(Context& ctx, std::span<const int32_t> ids, ConstTensor shard,
                      int64_t first_row, Tensor out) {
    require(static_cast<int64_t>(ids.size()) == out.rows, "one id per row of out");
    require(shard.rows == 0 || shard.cols == out.cols, "shard as wide as out");
    if (out.size() == 0) return;
    with_element_type(shard.dtype, [&]<typename From>() {
        with_element_type(out.dtype, [&]<typename To>() {
            const auto gather = [&]<int kCount>() {
                launch(ctx, gather_kernel<From, To, kCount>, blocks_for(out.rows, 1), kThreads,
                       ids.data(), shard.as<From>(), shard.stride, shard.rows, first_row,
                       out.as<To>(), out.stride, out.rows, out.cols);
            };
            with_vectors<widest<From, To>()>(gather, shard, out);
        });
    });
}

/// Uses as much of the lane's workspace as add_rows_in_order().
void embedding_scatter_add(Context& ctx, std::span<const int32_t> ids, ConstTensor dy,
                           int64_t first_row, Tensor dshard, bool accumulate) {
    require(static_cast<int64_t>(ids.size()) == dy.rows, "one id per row of dy");
    require(dshard.rows == 0 || dshard.cols == dy.cols, "dshard as wide as dy");
    require(dshard.dtype == DType::fp32, "fp32 dshard");
    if (dshard.size() == 0) return;
    if (!accumulate) {
        const auto clear = [&]<int kCount>() {
            launch(ctx, clear_rows_kernel<kCount>, blocks_for(dshard.rows, 1), kThreads,
                   dshard.as<float>(), dshard.stride, dshard.rows, dshard.cols);
        };
        with_vectors<widest<float>()>(clear, dshard);
    }
    add_rows_in_order(ctx, ids, first_row, dy, {}, dshard);
}

/// Takes all rows, not only those of `ids`: two ids of one row would need an order between blocks,
/// and a pass over all rows takes a fraction of a millisecond.
void embedding_take(Context& ctx, std::span<const std::span<const int32_t>> /*ids*/,
                    int64_t /*first_row*/, Tensor from, Tensor to) {
    require(same_shape(from, to) && from.dtype == DType::fp32 && to.dtype == DType::fp32,
            "fp32 from and to of one shape");
    if (to.size() == 0) return;
    const auto take = [&]<int kCount>() {
        launch(ctx, take_rows_kernel<kCount>, blocks_for(to.rows, 1), kThreads, from.as<float>(),
               from.stride, to.as<float>(), to.stride, to.rows, to.cols);
    };
    with_vectors<widest<float>()>(take, from, to);
}

void add_positions(Context& ctx, ConstTensor x, ConstTensor wpe, int64_t seq_length,
                   std::span<const int32_t> positions, Tensor y) {
    require_add_positions(x, wpe, seq_length, positions, y);
    if (y.size() == 0) return;
    with_element_type(x.dtype, [&]<typename T>() {
        with_element_type(wpe.dtype, [&]<typename P>() {
            const auto add = [&]<int kCount>() {
                launch(ctx, add_positions_kernel<T, P, kCount>, blocks_for(y.rows, 1), kThreads,
                       x.as<T>(), x.stride, wpe.as<P>(), wpe.stride, seq_length,
                       positions.empty() ? nullptr : positions.data(), y.as<T>(), y.stride, y.rows,
                       y.cols);
            };
            with_vectors<widest<T, P>()>(add, x, wpe, y);
        });
    });
}

void positions_gradient(Context& ctx, ConstTensor dy, int64_t seq_length, Tensor dwpe,
                        bool accumulate) {
    require(seq_length > 0 && dwpe.rows >= seq_length, "seq_length rows of dwpe");
    require(dwpe.cols == dy.cols && dwpe.dtype == DType::fp32, "dwpe as wide as dy, fp32");
    if (dwpe.size() == 0) return;
    with_element_type(dy.dtype, [&]<typename T>() {
        const auto add = [&]<int kCount>() {
            launch(ctx, positions_gradient_kernel<T, kCount>, blocks_for(dwpe.rows, 1), kThreads,
                   dy.as<T>(), dy.stride, dy.rows, seq_length, dwpe.as<float>(), dwpe.stride,
                   dwpe.rows, dwpe.cols, accumulate);
        };
        with_vectors<widest<T>()>(add, dy, dwpe);
    });
}

}  // namespace vocabpipe::kernels::cuda

// SPDX-License-Identifier: Apache-2.0
// Each head has as many lanes of a warp as it has vectors, so that all lanes load.
#include "kernels/cuda/operators.hpp"

#include "kernels/cuda/column_reduce.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/norm_checks.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 256;

/// The heads of a token, next to each other: `normed` heads of q and k, then those of v. 32 bits,
/// because every thread divides.
struct Heads {
    uint32_t tokens, q, normed, all;
    int64_t size;
};

/// The head that this thread shares with kLanes - 1 neighbours.
template <int kLanes>
struct MyHead {
    uint32_t token, head;
    int64_t begin;  ///< its first column
    int64_t size;   ///< its columns; 0: no head left, the thread only joins its warp's sums
    bool normed;

    __device__ __forceinline__ explicit MyHead(const Heads& heads) {
        const uint32_t at = blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes;
        const bool exists = at < heads.tokens * heads.all;
        token = exists ? at / heads.all : 0;
        head = exists ? at % heads.all : 0;
        begin = head * heads.size;
        size = exists ? heads.size : 0;
        normed = exists && head < heads.normed;
    }
    [[nodiscard]] __device__ __forceinline__ unsigned lane() const { return threadIdx.x % kLanes; }
};

/// Calls launcher.template operator()<kLanes, kSlots>(blocks). Vectors of one element serve tensors
/// of odd sizes.
template <int kCount, typename Launcher>
void with_lanes(const Heads& heads, Launcher&& launcher) {
    const auto launch_with = [&]<int kLanes, int kSlots>() {
        launcher.template operator()<kLanes, kSlots>(
            blocks_for(int64_t{heads.tokens} * heads.all, kThreads / kLanes));
    };
    if constexpr (kCount == 1) {
        launch_with.template operator()<kWarpThreads, 0>();
    } else if (heads.size > int64_t{kWarpThreads} * kCount) {
        launch_with.template operator()<kWarpThreads, 0>();
    } else if (heads.size > int64_t{16} * kCount) {
        launch_with.template operator()<kWarpThreads, 1>();
    } else if (heads.size > int64_t{8} * kCount) {
        launch_with.template operator()<16, 1>();
    } else {
        launch_with.template operator()<8, 1>();
    }
}

template <typename T>
struct ForwardArguments {
    Heads heads;
    const T* qkv;
    const T* gamma_q;
    const T* gamma_k;
    T* out;
    float* statistics;
    int64_t qkv_stride, out_stride, statistics_stride;
    float epsilon, weight_offset;
};

template <typename T, int kCount, int kLanes, int kSlots>
__global__ void __launch_bounds__(kThreads) head_norm_forward_kernel(ForwardArguments<T> a) {
    const MyHead<kLanes> mine(a.heads);
    const T* x = a.qkv + mine.token * a.qkv_stride + mine.begin;
    Kept<kCount, kSlots> kept;
    float squares = 0.0F;
    for_columns<kCount, kSlots>(mine.size, mine.lane(), kLanes, [&](int64_t col, int slot) {
        const auto& values = kept.vectors[slot] = loaded<T, kCount>(x + col);
        for (int i = 0; i < kCount; ++i) squares += values[i] * values[i];
    });
    squares = warp_sum<kLanes>(squares);
    const float inverse_rms = 1.0F / sqrtf(squares / static_cast<float>(a.heads.size) + a.epsilon);
    const T* gammas = mine.head < a.heads.q ? a.gamma_q : a.gamma_k;
    T* out = a.out + mine.token * a.out_stride + mine.begin;
    for_columns<kCount, kSlots>(mine.size, mine.lane(), kLanes, [&](int64_t col, int slot) {
        auto values = kept.get(slot, [&] { return loaded<T, kCount>(x + col); });
        if (mine.normed) {
            const auto gamma = loaded<T, kCount>(gammas + col);
            for (int i = 0; i < kCount; ++i) {
                values[i] = (gamma[i] + a.weight_offset) * (values[i] * inverse_rms);
            }
        }
        values.store(out + col);
    });
    if (mine.normed && mine.lane() == 0) {
        a.statistics[mine.token * a.statistics_stride + mine.head] = inverse_rms;
    }
}

template <typename T>
struct BackwardArguments {
    Heads heads;
    const T* dout;
    const T* qkv;
    const T* gamma_q;
    const T* gamma_k;
    const float* statistics;
    T* dqkv;
    int64_t dout_stride, qkv_stride, statistics_stride, dqkv_stride;
    float weight_offset;
};

template <typename T, int kCount, int kLanes, int kSlots>
__global__ void __launch_bounds__(kThreads)
    head_norm_backward_input_kernel(BackwardArguments<T> a) {
    const MyHead<kLanes> mine(a.heads);
    const T* dout = a.dout + mine.token * a.dout_stride + mine.begin;
    const T* x = a.qkv + mine.token * a.qkv_stride + mine.begin;
    const T* gammas = mine.head < a.heads.q ? a.gamma_q : a.gamma_k;
    const float inverse_rms =
        mine.normed ? a.statistics[mine.token * a.statistics_stride + mine.head] : 0.0F;
    const auto load_g = [&](int64_t col) {
        auto g = loaded<T, kCount>(dout + col);
        if (mine.normed) {
            const auto gamma = loaded<T, kCount>(gammas + col);
            for (int i = 0; i < kCount; ++i) g[i] *= gamma[i] + a.weight_offset;
        }
        return g;
    };
    const auto load_z = [&](int64_t col) {
        Vector<kCount> z = {};
        if (mine.normed) z.load(x + col);
        for (int i = 0; i < kCount; ++i) z[i] *= inverse_rms;
        return z;
    };
    Kept<kCount, kSlots> kept_g, kept_z;
    float mean_gz = 0.0F;
    for_columns<kCount, kSlots>(mine.size, mine.lane(), kLanes, [&](int64_t col, int slot) {
        const auto& g = kept_g.vectors[slot] = load_g(col);
        const auto& z = kept_z.vectors[slot] = load_z(col);
        for (int i = 0; i < kCount; ++i) mean_gz += g[i] * z[i];
    });
    mean_gz = warp_sum<kLanes>(mean_gz) / static_cast<float>(a.heads.size);
    T* dqkv = a.dqkv + mine.token * a.dqkv_stride + mine.begin;
    for_columns<kCount, kSlots>(mine.size, mine.lane(), kLanes, [&](int64_t col, int slot) {
        auto g = kept_g.get(slot, [&] { return load_g(col); });
        const auto& z = kept_z.get(slot, [&] { return load_z(col); });
        if (mine.normed) {
            for (int i = 0; i < kCount; ++i) g[i] = inverse_rms * (g[i] - z[i] * mean_gz);
        }
        g.store(dqkv + col);
    });
}

/// Terms of gamma's gradient. Rows are the heads of q, or those of k, of all tokens.
template <typename T, int kCount>
struct WeightTerms {
    const T* dout;
    const T* qkv;
    const float* statistics;
    int64_t dout_stride, qkv_stride, statistics_stride, head_size;
    uint32_t heads;

    __device__ void add(int64_t row, int64_t col, Vector<kCount>& sum) const {
        const uint32_t token = static_cast<uint32_t>(row) / heads;
        const uint32_t head = static_cast<uint32_t>(row) % heads;
        const int64_t at = head * head_size + col;
        const float inverse_rms = statistics[token * statistics_stride + head];
        const auto gradient = loaded<T, kCount>(dout + token * dout_stride + at);
        const auto value = loaded<T, kCount>(qkv + token * qkv_stride + at);
        for (int i = 0; i < kCount; ++i) sum[i] += gradient[i] * (value[i] * inverse_rms);
    }
};

void require_arguments(ConstTensor qkv, ConstTensor other, ConstTensor statistics,
                       const AttentionShape& shape) {
    require_head_norm(qkv, other, statistics, shape);
    // The limit of a grid; indices then do not overflow in any of its blocks.
    require(qkv.rows * (shape.heads + 2 * shape.kv_heads) <= 0x7fffffff, "fewer than 2^31 heads");
}

Heads heads_of(const AttentionShape& shape) {
    return {.tokens = static_cast<uint32_t>(shape.tokens()),
            .q = static_cast<uint32_t>(shape.heads),
            .normed = static_cast<uint32_t>(shape.heads + shape.kv_heads),
            .all = static_cast<uint32_t>(shape.heads + 2 * shape.kv_heads),
            .size = shape.head_size};
}

/// A view of the first head, which decides whether heads can be read as vectors.
template <typename View>
View first_head(View tensor, const AttentionShape& shape) {
    return tensor.column_range(0, shape.head_size);
}

}  // namespace

void head_norm_forward(Context& ctx, ConstTensor qkv, ConstTensor gamma_q, ConstTensor gamma_k,
                       const RmsNormOptions& options, const AttentionShape& shape, Tensor out,
                       Tensor statistics) {
    require_arguments(qkv, out, statistics, shape);
    require_head_gammas(gamma_q, gamma_k, shape, qkv.dtype);
    if (qkv.size() == 0) return;
    with_element_type(qkv.dtype, [&]<typename T>() {
        const ForwardArguments<T> arguments{.heads = heads_of(shape),
                                            .qkv = qkv.as<T>(),
                                            .gamma_q = gamma_q.as<T>(),
                                            .gamma_k = gamma_k.as<T>(),
                                            .out = out.as<T>(),
                                            .statistics = statistics.as<float>(),
                                            .qkv_stride = qkv.stride,
                                            .out_stride = out.stride,
                                            .statistics_stride = statistics.stride,
                                            .epsilon = options.epsilon,
                                            .weight_offset = options.weight_offset};
        with_vectors(
            [&]<int kCount>() {
                with_lanes<kCount>(arguments.heads, [&]<int kLanes, int kSlots>(unsigned blocks) {
                    launch(ctx, head_norm_forward_kernel<T, kCount, kLanes, kSlots>, dim3(blocks),
                           dim3(kThreads), arguments);
                });
            },
            first_head(qkv, shape), gamma_q, gamma_k, first_head(out, shape));
    });
}

void head_norm_backward_input(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor gamma_q,
                              ConstTensor gamma_k, const RmsNormOptions& options,
                              ConstTensor statistics, const AttentionShape& shape, Tensor dqkv) {
    require_arguments(qkv, dout, statistics, shape);
    require_arguments(qkv, dqkv, statistics, shape);
    require_head_gammas(gamma_q, gamma_k, shape, qkv.dtype);
    if (qkv.size() == 0) return;
    with_element_type(qkv.dtype, [&]<typename T>() {
        const BackwardArguments<T> arguments{.heads = heads_of(shape),
                                             .dout = dout.as<T>(),
                                             .qkv = qkv.as<T>(),
                                             .gamma_q = gamma_q.as<T>(),
                                             .gamma_k = gamma_k.as<T>(),
                                             .statistics = statistics.as<float>(),
                                             .dqkv = dqkv.as<T>(),
                                             .dout_stride = dout.stride,
                                             .qkv_stride = qkv.stride,
                                             .statistics_stride = statistics.stride,
                                             .dqkv_stride = dqkv.stride,
                                             .weight_offset = options.weight_offset};
        with_vectors(
            [&]<int kCount>() {
                with_lanes<kCount>(arguments.heads, [&]<int kLanes, int kSlots>(unsigned blocks) {
                    launch(ctx, head_norm_backward_input_kernel<T, kCount, kLanes, kSlots>,
                           dim3(blocks), dim3(kThreads), arguments);
                });
            },
            first_head(dout, shape), first_head(qkv, shape), gamma_q, gamma_k,
            first_head(dqkv, shape));
    });
}

void head_norm_backward_weight(Context& ctx, ConstTensor dout, ConstTensor qkv,
                               ConstTensor statistics, const AttentionShape& shape, Tensor dgamma_q,
                               Tensor dgamma_k, bool accumulate) {
    require_arguments(qkv, dout, statistics, shape);
    require_head_gammas(dgamma_q, dgamma_k, shape, DType::fp32);
    const auto sum_over_heads = [&](int64_t first, int64_t heads, Tensor dgamma) {
        const ColumnTotals<1> totals{{dgamma.as<float>()}, accumulate};
        const auto part = [&](ConstTensor tensor) {
            return tensor.column_range(first * shape.head_size, shape.head_size);
        };
        with_element_type(qkv.dtype, [&]<typename T>() {
            with_vectors(
                [&]<int kCount>() {
                    const WeightTerms<T, kCount> terms{
                        .dout = part(dout).template as<T>(),
                        .qkv = part(qkv).template as<T>(),
                        .statistics = statistics.column_range(first, heads).as<float>(),
                        .dout_stride = dout.stride,
                        .qkv_stride = qkv.stride,
                        .statistics_stride = statistics.stride,
                        .head_size = shape.head_size,
                        .heads = static_cast<uint32_t>(heads)};
                    column_reduce<kCount>(ctx, terms, qkv.rows * heads, shape.head_size, totals);
                },
                part(dout), part(qkv));
        });
    };
    sum_over_heads(0, shape.heads, dgamma_q);
    sum_over_heads(shape.heads, shape.kv_heads, dgamma_k);
}

}  // namespace vocabpipe::kernels::cuda

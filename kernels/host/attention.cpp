// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/attention.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/bf16.hpp"
#include "kernels/check.hpp"
#include "kernels/host/math.hpp"
#include "kernels/host/matmul.hpp"
#include "kernels/host/parallel.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// Query rows per block: long enough for full GEMM speed, short enough that little above the
/// diagonal is computed in vain and that a block of scores against 512 keys stays in the L2 cache.
constexpr int64_t kBlockRows = 64;

constexpr int64_t round_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

/// Scores are stored with rows of a multiple of 16 elements: whole 512-bit vectors of fp32.
int64_t score_stride(AttentionShape shape) {
    return round_up(shape.seq_length, 16);
}
int64_t block_rows(AttentionShape shape) {
    return std::min(kBlockRows, shape.seq_length);
}

/// What one thread works in; all parts start on cache lines.
struct Blocks {
    float* scores;         ///< (block, s): q k^T
    float* gradients;      ///< (block, s): dout v^T
    void* probabilities;   ///< (block, s) of the run's type; fp32: the same memory as scores
    void* score_gradient;  ///< (block, s) of the run's type; fp32: the same memory as gradients
    float* dk;             ///< (s, head_size)
    float* dv;             ///< (s, head_size)
};

int64_t bytes_per_thread(AttentionShape shape, DType type) {
    const int64_t block = block_rows(shape) * score_stride(shape);
    const int64_t narrow = type == DType::fp32 ? 0 : 2 * round_up(block * size_of(type), 64);
    const int64_t sums = 2 * round_up(shape.seq_length * shape.head_size * 4, 64);
    return 2 * round_up(block * 4, 64) + narrow + sums;
}

Blocks blocks_of_thread(std::span<std::byte> workspace, int thread, AttentionShape shape,
                        DType type) {
    const int64_t block = block_rows(shape) * score_stride(shape);
    std::byte* next = workspace.data() + thread * bytes_per_thread(shape, type);
    const auto take = [&](int64_t bytes) {
        std::byte* taken = next;
        next += round_up(bytes, 64);
        return taken;
    };
    const auto floats = [&](int64_t count) { return reinterpret_cast<float*>(take(count * 4)); };
    Blocks result{};
    result.scores = floats(block);
    result.gradients = floats(block);
    const bool narrow = type != DType::fp32;
    result.probabilities = narrow ? static_cast<void*>(take(block * 2)) : result.scores;
    result.score_gradient = narrow ? static_cast<void*>(take(block * 2)) : result.gradients;
    result.dk = floats(shape.seq_length * shape.head_size);
    result.dv = floats(shape.seq_length * shape.head_size);
    return result;
}

/// A block of query rows [begin, begin + rows) sees keys [0, begin + rows).
struct RowBlock {
    int64_t begin;
    int64_t rows;
    [[nodiscard]] int64_t keys() const { return begin + rows; }
};

std::vector<RowBlock> row_blocks(AttentionShape shape) {
    std::vector<RowBlock> result;
    for (int64_t begin = 0; begin < shape.seq_length; begin += kBlockRows) {
        result.push_back({begin, std::min(kBlockRows, shape.seq_length - begin)});
    }
    return result;
}

/// Calls body(sequence, head, thread) for all pairs. Every pair writes its own rows and columns, so
/// the distribution over threads does not show in the results.
template <typename Body>
void for_each_head(Context& ctx, AttentionShape shape, Body&& body) {
    const OneThreadProducts guard(ctx.engine());
    const int64_t pairs = shape.sequences * shape.heads;
    const auto threads = static_cast<int>(std::min<int64_t>(ctx.threads(), pairs));
    if (threads <= 1) {
        for (int64_t pair = 0; pair < pairs; ++pair) {
            body(pair / shape.heads, pair % shape.heads, 0);
            ctx.poll();
        }
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t pair = 0; pair < pairs; ++pair) {
        body(pair / shape.heads, pair % shape.heads, omp_get_thread_num());
    }
}

void require_shapes(Context& ctx, ConstTensor qkv, AttentionShape shape, ConstTensor out,
                    ConstTensor log_sum_exp, std::span<std::byte> workspace) {
    require(has_shape(qkv, shape.tokens(), shape.qkv_columns()), "qkv of shape (N, 3h)");
    require(has_shape(out, shape.tokens(), shape.query_columns()), "out of shape (N, h)");
    require(has_shape(log_sum_exp, shape.tokens(), shape.heads) && log_sum_exp.dtype == DType::fp32,
            "log_sum_exp of shape (N, heads) fp32");
    require(qkv.dtype == out.dtype, "one type for qkv and out");
    require(static_cast<int64_t>(workspace.size()) >=
                attention_workspace_bytes(shape, qkv.dtype, ctx.threads()),
            "workspace of attention_workspace_bytes()");
}

/// Row loops run over whole vectors; what lies behind the visible keys is masked out beforehand.
constexpr int64_t kVector = 16;
static_assert(kBlockRows % kVector == 0);

/// Masks the scores behind the visible keys, and returns the vectors that hold visible ones.
int64_t mask(float* scores, int64_t visible) {
    const int64_t vectors = (visible + kVector - 1) / kVector;
    std::fill(scores + visible, scores + vectors * kVector,
              -std::numeric_limits<float>::infinity());
    return vectors;
}

/// Of `padded` scores, a multiple of kVector.
float row_maximum(const float* scores, int64_t padded) {
    // A vector by hand: compilers that honour NaN do not vectorise a max reduction.
    using Lanes [[gnu::vector_size(kVector * sizeof(float))]] = float;
    Lanes lanes;
    std::memcpy(&lanes, scores, sizeof(Lanes));
    for (int64_t j = kVector; j < padded; j += kVector) {
        Lanes next;
        std::memcpy(&next, scores + j, sizeof(Lanes));
        lanes = lanes > next ? lanes : next;
    }
    float largest = lanes[0];
    for (int lane = 1; lane < kVector; ++lane) largest = std::max(largest, float{lanes[lane]});
    return largest;
}

/// scores = exp(scale * (scores - maximum)). Not inlined: clang 14 then merges loads of the loop
/// before into this one and gives up vectorising it.
[[gnu::noinline]] void exponentials(float* scores, int64_t padded, float scale, float maximum) {
#pragma omp simd
    for (int64_t j = 0; j < padded; ++j) scores[j] = fast_exp(scale * (scores[j] - maximum));
}

/// Turns a row of raw scores q k^T into exp(scale * (score - maximum)), un-normalised, over the
/// visible keys and zeros after them. Returns the sum; `maximum` is that of the raw scores.
template <typename T>
float softmax_row(float* scores, int64_t visible, int64_t keys, float scale, float& maximum,
                  T* probabilities) {
    const int64_t padded = mask(scores, visible) * kVector;
    const float largest = row_maximum(scores, padded);
    exponentials(scores, padded, scale, largest);
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < padded; ++j) sum += scores[j];
    if constexpr (!std::is_same_v<T, float>) {  // fp32 probabilities are the scores' memory
#pragma omp simd
        for (int64_t j = 0; j < padded; ++j) probabilities[j] = from_float<T>(scores[j]);
    }
    if (padded < keys) std::fill(probabilities + padded, probabilities + keys, T{});
    maximum = largest;
    return sum;
}

template <typename T>
void forward(Context& ctx, ConstTensor qkv, AttentionShape shape, Tensor out, Tensor log_sum_exp,
             std::span<std::byte> workspace) {
    const int64_t d = shape.head_size;
    const int64_t stride = score_stride(shape);
    const float scale = 1.0F / std::sqrt(static_cast<float>(d));
    const auto blocks = row_blocks(shape);

    struct Products {
        Matmul* scores;  ///< (rows, keys) = q k^T
        Matmul* out;     ///< (rows, d) fp32 = p v
    };
    std::vector<Products> products;
    for (const RowBlock& block : blocks) {
        auto& engine = ctx.engine();
        const MatmulShape scores{.m = block.rows,
                                 .n = block.keys(),
                                 .k = d,
                                 .a_stride = qkv.stride,
                                 .b_stride = qkv.stride,
                                 .c_stride = stride,
                                 .ab_type = qkv.dtype,
                                 .transpose_b = true};
        const MatmulShape weighted{.m = block.rows,
                                   .n = d,
                                   .k = block.keys(),
                                   .a_stride = stride,
                                   .b_stride = qkv.stride,
                                   .c_stride = d,
                                   .ab_type = qkv.dtype};
        products.push_back({&prepare_matmul(engine, scores), &prepare_matmul(engine, weighted)});
    }

    for_each_head(ctx, shape, [&](int64_t sequence, int64_t head, int thread) {
        const Blocks work = blocks_of_thread(workspace, thread, shape, qkv.dtype);
        T* p = static_cast<T*>(work.probabilities);
        const T* q = qkv.as<T>() + sequence * shape.seq_length * qkv.stride + head * d;
        const T* k = q + shape.query_columns();
        const T* v = k + shape.kv_columns();
        float inverse_sum[kBlockRows];
        for (size_t index = 0; index < blocks.size(); ++index) {
            const RowBlock block = blocks[index];
            run_matmul(ctx.engine(), *products[index].scores, thread, q + block.begin * qkv.stride,
                       k, work.scores);
            const int64_t first_row = sequence * shape.seq_length + block.begin;
            for (int64_t i = 0; i < block.rows; ++i) {
                float maximum;
                const float sum = softmax_row(work.scores + i * stride, block.begin + i + 1,
                                              block.keys(), scale, maximum, p + i * stride);
                inverse_sum[i] = 1.0F / sum;
                log_sum_exp.as<float>()[(first_row + i) * log_sum_exp.stride + head] =
                    scale * maximum + std::log(sum);
            }
            // Probabilities stay un-normalised in the product; dividing its rows is less work.
            float* product = work.dv;
            run_matmul(ctx.engine(), *products[index].out, thread, p, v, product);
            for (int64_t i = 0; i < block.rows; ++i) {
                T* to = out.as<T>() + (first_row + i) * out.stride + head * d;
#pragma omp simd
                for (int64_t j = 0; j < d; ++j) {
                    to[j] = from_float<T>(product[i * d + j] * inverse_sum[i]);
                }
            }
        }
    });
}

/// ds_j = p_j (dp_j - delta) scale over the visible keys, 0 after them; p_j recomputed. ds may
/// overwrite dp, p may overwrite scores.
template <typename T>
void softmax_gradient_row(float* scores, float* dp, int64_t visible, int64_t keys, float scale,
                          float log_sum_exp, float delta, T* p, T* ds) {
    const int64_t padded = mask(scores, visible) * kVector;
    if (padded > keys) std::fill(dp + keys, dp + padded, 0.0F);  // no product wrote these
#pragma omp simd
    for (int64_t j = 0; j < padded; ++j) {
        const float probability = fast_exp(scale * scores[j] - log_sum_exp);
        const float gradient = probability * (dp[j] - delta) * scale;
        p[j] = from_float<T>(probability);
        ds[j] = from_float<T>(gradient);
    }
    if (padded < keys) {
        std::fill(p + padded, p + keys, T{});
        std::fill(ds + padded, ds + keys, T{});
    }
}

template <typename T>
void backward(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor out,
              ConstTensor log_sum_exp, AttentionShape shape, Tensor dqkv,
              std::span<std::byte> workspace) {
    const int64_t d = shape.head_size;
    const int64_t stride = score_stride(shape);
    const float scale = 1.0F / std::sqrt(static_cast<float>(d));
    const auto blocks = row_blocks(shape);

    struct Products {
        Matmul* scores;  ///< (rows, keys) = q k^T
        Matmul* dp;      ///< (rows, keys) = dout v^T
        Matmul* dv;      ///< (keys, d) [+]= p^T dout
        Matmul* dk;      ///< (keys, d) [+]= ds^T q
        Matmul* dq;      ///< (rows, d) = ds k, of the run's type
    };
    std::vector<Products> products;
    for (const RowBlock& block : blocks) {
        const bool last = block.keys() == shape.seq_length;  // runs first and covers all keys
        const auto prepare = [&](MatmulShape matmul) {
            matmul.ab_type = qkv.dtype;
            return &prepare_matmul(ctx.engine(), matmul);
        };
        MatmulShape scores{.m = block.rows, .n = block.keys(), .k = d};
        scores.a_stride = scores.b_stride = qkv.stride;
        scores.c_stride = stride;
        scores.transpose_b = true;
        MatmulShape dp = scores;
        dp.a_stride = dout.stride;
        MatmulShape dv{.m = block.keys(), .n = d, .k = block.rows};
        dv.a_stride = stride;
        dv.b_stride = dout.stride;
        dv.c_stride = d;
        dv.transpose_a = true;
        dv.accumulate = !last;
        MatmulShape dk = dv;
        dk.b_stride = qkv.stride;
        MatmulShape dq{.m = block.rows, .n = d, .k = block.keys()};
        dq.a_stride = stride;
        dq.b_stride = qkv.stride;
        dq.c_stride = dqkv.stride;
        dq.c_type = dqkv.dtype;
        products.push_back({prepare(scores), prepare(dp), prepare(dv), prepare(dk), prepare(dq)});
    }

    for_each_head(ctx, shape, [&](int64_t sequence, int64_t head, int thread) {
        auto& engine = ctx.engine();
        const Blocks work = blocks_of_thread(workspace, thread, shape, qkv.dtype);
        T* p = static_cast<T*>(work.probabilities);
        T* ds = static_cast<T*>(work.score_gradient);
        const int64_t token = sequence * shape.seq_length;
        const T* q = qkv.as<T>() + token * qkv.stride + head * d;
        const T* k = q + shape.query_columns();
        const T* v = k + shape.kv_columns();
        T* dq = dqkv.as<T>() + token * dqkv.stride + head * d;
        for (size_t index = blocks.size(); index-- > 0;) {
            const RowBlock block = blocks[index];
            const Products& product = products[index];
            const T* q_block = q + block.begin * qkv.stride;
            const T* dout_block = dout.as<T>() + (token + block.begin) * dout.stride + head * d;
            const T* out_block = out.as<T>() + (token + block.begin) * out.stride + head * d;
            run_matmul(engine, *product.scores, thread, q_block, k, work.scores);
            run_matmul(engine, *product.dp, thread, dout_block, v, work.gradients);
            for (int64_t i = 0; i < block.rows; ++i) {
                float delta = 0.0F;  // dout . out = sum_j p_j dp_j
                const T* dout_row = dout_block + i * dout.stride;
                const T* out_row = out_block + i * out.stride;
#pragma omp simd reduction(+ : delta)
                for (int64_t j = 0; j < d; ++j)
                    delta += to_float(dout_row[j]) * to_float(out_row[j]);
                const float row_log_sum =
                    log_sum_exp.as<float>()[(token + block.begin + i) * log_sum_exp.stride + head];
                softmax_gradient_row(work.scores + i * stride, work.gradients + i * stride,
                                     block.begin + i + 1, block.keys(), scale, row_log_sum, delta,
                                     p + i * stride, ds + i * stride);
            }
            run_matmul(engine, *product.dv, thread, p, dout_block, work.dv);
            run_matmul(engine, *product.dk, thread, ds, q_block, work.dk);
            run_matmul(engine, *product.dq, thread, ds, k, dq + block.begin * dqkv.stride);
        }
        const auto store = [&](const float* from, T* to) {
            for (int64_t t = 0; t < shape.seq_length; ++t) {
#pragma omp simd
                for (int64_t j = 0; j < d; ++j) {
                    to[t * dqkv.stride + j] = from_float<T>(from[t * d + j]);
                }
            }
        };
        store(work.dk, dq + shape.query_columns());
        store(work.dv, dq + 2 * shape.query_columns());
    });
}

}  // namespace

int64_t attention_workspace_bytes(AttentionShape shape, DType type, int threads) {
    return bytes_per_thread(shape, type) * threads;
}

void causal_attention_forward(Context& ctx, ConstTensor qkv, AttentionShape shape, Tensor out,
                              Tensor log_sum_exp, std::span<std::byte> workspace) {
    require_shapes(ctx, qkv, shape, out, log_sum_exp, workspace);
    if (out.size() == 0) return;
    ctx.engine().bind_thread();
    with_type(qkv.dtype,
              [&]<typename T>() { forward<T>(ctx, qkv, shape, out, log_sum_exp, workspace); });
}

void causal_attention_backward(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor out,
                               ConstTensor log_sum_exp, AttentionShape shape, Tensor dqkv,
                               std::span<std::byte> workspace) {
    require_shapes(ctx, qkv, shape, out, log_sum_exp, workspace);
    require(same_shape(dout, out) && same_shape(dqkv, qkv), "gradients shaped as their tensors");
    require(dout.dtype == qkv.dtype && dqkv.dtype == qkv.dtype, "one type for all gradients");
    if (out.size() == 0) return;
    ctx.engine().bind_thread();
    with_type(qkv.dtype, [&]<typename T>() {
        backward<T>(ctx, dout, qkv, out, log_sum_exp, shape, dqkv, workspace);
    });
}

}  // namespace vocabpipe::kernels::host

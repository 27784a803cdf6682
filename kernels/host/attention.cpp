// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/attention_checks.hpp"
#include "kernels/bf16.hpp"
#include "kernels/check.hpp"
#include "kernels/host/attention_blocks.hpp"
#include "kernels/host/math.hpp"
#include "kernels/host/matmul.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/softcap.hpp"

namespace vocabpipe::kernels::host {

namespace {

constexpr int64_t round_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

int64_t block_rows(AttentionShape shape) {
    return std::min(kBlockRows, shape.seq_length);
}
/// The most keys that a block of queries sees.
int64_t block_keys(AttentionShape shape) {
    return shape.window > 0 ? std::min(shape.window - 1 + block_rows(shape), shape.seq_length)
                            : shape.seq_length;
}
/// Scores are stored with rows of a multiple of 16 elements: whole 512-bit vectors of fp32.
int64_t score_stride(AttentionShape shape) {
    return round_up(block_keys(shape), 16);
}

/// What one thread works in; all parts start on cache lines.
struct Blocks {
    float* scores;         ///< (block, keys): q k^T
    float* gradients;      ///< (block, keys): dout v^T
    void* probabilities;   ///< (block, keys) of the run's type; fp32: the same memory as scores
    void* score_gradient;  ///< (block, keys) of the run's type; fp32: the same memory as gradients
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

/// A block of queries and the products that it needs.
template <typename Products>
struct Step {
    RowBlock block;
    Products products;
};

/// What each sequence does, block by block: `prepare(block, is_last)` gives a block's products.
/// Without documents all sequences do the same.
template <typename Products>
class Steps {
public:
    template <typename Prepare>
    Steps(const AttentionShape& shape, std::span<const int32_t> first_visible, Prepare&& prepare)
        : of_(first_visible.empty() ? 1 : static_cast<size_t>(shape.sequences)) {
        const auto length = first_visible.empty() ? 0 : static_cast<size_t>(shape.seq_length);
        for (size_t sequence = 0; sequence < of_.size(); ++sequence) {
            const auto blocks = row_blocks(shape, first_visible.subspan(sequence * length, length));
            for (const RowBlock& block : blocks) {
                of_[sequence].push_back({block, prepare(block, &block == &blocks.back())});
            }
        }
    }
    [[nodiscard]] const std::vector<Step<Products>>& of(int64_t sequence) const {
        return of_[of_.size() == 1 ? 0 : static_cast<size_t>(sequence)];
    }

private:
    std::vector<std::vector<Step<Products>>> of_;
};

/// Calls body(sequence, head, thread) for all pairs; `together` consecutive heads run in order on
/// one thread. What these write nobody else does, so the distribution over threads does not show in
/// the results.
template <typename Body>
void for_each_head(Context& ctx, AttentionShape shape, int64_t together, Body&& body) {
    const OneThreadProducts guard(ctx.engine());
    const int64_t groups = shape.sequences * shape.heads / together;
    const auto threads = static_cast<int>(std::min<int64_t>(ctx.threads(), groups));
    const auto run_group = [&](int64_t group, int thread) {
        for (int64_t pair = group * together; pair < (group + 1) * together; ++pair) {
            body(pair / shape.heads, pair % shape.heads, thread);
            if (threads <= 1) ctx.poll();
        }
    };
    if (threads <= 1) {
        for (int64_t group = 0; group < groups; ++group) run_group(group, 0);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t group = 0; group < groups; ++group) run_group(group, omp_get_thread_num());
}

/// How a score follows from q k: scale q k, or cap tanh(scale q k / cap).
struct Score {
    float scale;
    float cap;

    explicit Score(AttentionShape shape)
        : scale(shape.scale != 0 ? shape.scale
                                 : 1.0F / std::sqrt(static_cast<float>(shape.head_size))),
          cap(shape.softcap) {}
};

void require_arguments(Context& ctx, ConstTensor qkv, AttentionShape shape,
                       std::span<const int32_t> first_visible, ConstTensor out,
                       ConstTensor log_sum_exp, std::span<std::byte> workspace) {
    require_attention(qkv, shape, first_visible, out, log_sum_exp);
    require_visible_tokens(shape, first_visible);
    require(static_cast<int64_t>(workspace.size()) >=
                attention_workspace_bytes(shape, qkv.dtype, ctx.threads()),
            "workspace of attention_workspace_bytes()");
}

/// Row loops run over whole vectors; what lies around the visible keys is masked out beforehand.
constexpr int64_t kVector = 16;
static_assert(kBlockRows % kVector == 0);

/// The vectors that hold visible keys.
Columns whole_vectors(Columns visible) {
    return {visible.begin / kVector * kVector, round_up(visible.end, kVector)};
}

void mask(float* scores, Columns visible, Columns vectors) {
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    std::fill(scores + vectors.begin, scores + visible.begin, kNever);
    std::fill(scores + visible.end, scores + vectors.end, kNever);
}

/// Fills what a row of `keys` columns has around `vectors`.
template <typename T>
void clear_around(T* row, Columns vectors, int64_t keys) {
    std::fill(row, row + vectors.begin, T{});
    if (vectors.end < keys) std::fill(row + vectors.end, row + keys, T{});
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

/// Turns a row of products q k into exp(score - maximum), un-normalised, over the visible keys and
/// zeros around them. Returns the sum; `maximum` is that of the scores.
template <typename T>
float softmax_row(float* scores, Columns visible, int64_t keys, Score score, float& maximum,
                  T* probabilities) {
    const Columns vectors = whole_vectors(visible);
    float* const first = scores + vectors.begin;
    const int64_t padded = vectors.end - vectors.begin;
    float scale = score.scale;
    if (score.cap > 0) {
        soft_cap(first, padded, scale, score.cap);
        scale = 1;
    }
    mask(scores, visible, vectors);
    const float largest = row_maximum(first, padded);
    exponentials(first, padded, scale, largest);
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < padded; ++j) sum += first[j];
    if constexpr (!std::is_same_v<T, float>) {  // fp32 probabilities are the scores' memory
        T* const to = probabilities + vectors.begin;
#pragma omp simd
        for (int64_t j = 0; j < padded; ++j) to[j] = from_float<T>(first[j]);
    }
    clear_around(probabilities, vectors, keys);
    maximum = scale * largest;
    return sum;
}

template <typename T>
void forward(Context& ctx, ConstTensor qkv, AttentionShape shape,
             std::span<const int32_t> first_visible, Tensor out, Tensor log_sum_exp,
             std::span<std::byte> workspace) {
    const int64_t d = shape.head_size;
    const int64_t stride = score_stride(shape);
    const Score score(shape);
    const int64_t queries_per_key = shape.heads / shape.kv_heads;

    struct Products {
        Matmul* scores;  ///< (rows, keys) = q k^T
        Matmul* out;     ///< (rows, d) fp32 = p v
    };
    const auto prepare = [&](const RowBlock& block, bool) -> Products {
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
        return {&prepare_matmul(engine, scores), &prepare_matmul(engine, weighted)};
    };
    const Steps<Products> steps(shape, first_visible, prepare);

    for_each_head(ctx, shape, 1, [&](int64_t sequence, int64_t head, int thread) {
        const Blocks work = blocks_of_thread(workspace, thread, shape, qkv.dtype);
        T* p = static_cast<T*>(work.probabilities);
        const T* tokens = qkv.as<T>() + sequence * shape.seq_length * qkv.stride;
        const T* q = tokens + head * d;
        const T* k = tokens + shape.query_columns() + head / queries_per_key * d;
        const T* v = k + shape.kv_columns();
        float inverse_sum[kBlockRows];
        for (const auto& [block, products] : steps.of(sequence)) {
            run_matmul(ctx.engine(), *products.scores, thread, q + block.begin * qkv.stride,
                       k + block.first_key * qkv.stride, work.scores);
            const int64_t first_row = sequence * shape.seq_length + block.begin;
            for (int64_t i = 0; i < block.rows; ++i) {
                float maximum;
                const float sum = softmax_row(work.scores + i * stride, block.visible(i),
                                              block.keys(), score, maximum, p + i * stride);
                inverse_sum[i] = 1.0F / sum;
                log_sum_exp.as<float>()[(first_row + i) * log_sum_exp.stride + head] =
                    maximum + std::log(sum);
            }
            // Probabilities stay un-normalised in the product; dividing its rows is less work.
            float* product = work.dv;
            run_matmul(ctx.engine(), *products.out, thread, p, v + block.first_key * qkv.stride,
                       product);
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

/// ds_j = p_j (dp_j - delta) d score_j / d (q k) over the visible keys, 0 around them; p_j
/// recomputed. ds may overwrite dp, p may overwrite scores.
template <bool kCapped, typename T>
void softmax_gradient_row(float* scores, float* dp, Columns visible, int64_t keys, Score score,
                          float log_sum_exp, float delta, T* p, T* ds) {
    const Columns vectors = whole_vectors(visible);
    if (vectors.end > keys) std::fill(dp + keys, dp + vectors.end, 0.0F);  // no product wrote these
    const float scale = score.scale;
    if constexpr (kCapped) {
        soft_cap(scores + vectors.begin, vectors.end - vectors.begin, scale, score.cap);
    }
    mask(scores, visible, vectors);
    const float inverse_cap = kCapped ? 1.0F / score.cap : 0.0F;
#pragma omp simd
    for (int64_t j = vectors.begin; j < vectors.end; ++j) {
        const float exponent = kCapped ? scores[j] : scale * scores[j];
        const float probability = fast_exp(exponent - log_sum_exp);
        const float slope = kCapped ? scale * soft_cap_slope(scores[j], inverse_cap) : scale;
        const float gradient = probability * (dp[j] - delta) * slope;
        p[j] = from_float<T>(probability);
        ds[j] = from_float<T>(gradient);
    }
    clear_around(p, vectors, keys);
    clear_around(ds, vectors, keys);
}

template <bool kCapped, typename T>
void backward(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor out,
              ConstTensor log_sum_exp, AttentionShape shape, std::span<const int32_t> first_visible,
              Tensor dqkv, std::span<std::byte> workspace) {
    const int64_t d = shape.head_size;
    const int64_t stride = score_stride(shape);
    const Score score(shape);
    const int64_t queries_per_key = shape.heads / shape.kv_heads;

    struct Products {
        Matmul* scores;  ///< (rows, keys) = q k^T
        Matmul* dp;      ///< (rows, keys) = dout v^T
        Matmul* dv;      ///< (keys, d) += p^T dout
        Matmul* dk;      ///< (keys, d) += ds^T q
        Matmul* dq;      ///< (rows, d) = ds k, of the run's type
        // The last block of the first head runs first, and stores what the others add to.
        Matmul* first_dv = nullptr;
        Matmul* first_dk = nullptr;
    };
    const auto prepare_block = [&](const RowBlock& block, bool is_last) {
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
        MatmulShape dk = dv;
        dk.b_stride = qkv.stride;
        Products products{};
        if (is_last) {
            products.first_dv = prepare(dv);
            products.first_dk = prepare(dk);
        }
        dv.accumulate = dk.accumulate = true;
        MatmulShape dq{.m = block.rows, .n = d, .k = block.keys()};
        dq.a_stride = stride;
        dq.b_stride = qkv.stride;
        dq.c_stride = dqkv.stride;
        dq.c_type = dqkv.dtype;
        products.scores = prepare(scores);
        products.dp = prepare(dp);
        products.dv = prepare(dv);
        products.dk = prepare(dk);
        products.dq = prepare(dq);
        return products;
    };
    const Steps<Products> steps(shape, first_visible, prepare_block);

    // One thread sums dk and dv of the heads that share k and v, in order.
    for_each_head(ctx, shape, queries_per_key, [&](int64_t sequence, int64_t head, int thread) {
        auto& engine = ctx.engine();
        const Blocks work = blocks_of_thread(workspace, thread, shape, qkv.dtype);
        T* p = static_cast<T*>(work.probabilities);
        T* ds = static_cast<T*>(work.score_gradient);
        const int64_t token = sequence * shape.seq_length;
        const int64_t k_column = shape.query_columns() + head / queries_per_key * d;
        const T* q = qkv.as<T>() + token * qkv.stride + head * d;
        const T* k = qkv.as<T>() + token * qkv.stride + k_column;
        const T* v = k + shape.kv_columns();
        T* dq = dqkv.as<T>() + token * dqkv.stride + head * d;
        const bool first_head = head % queries_per_key == 0;
        const auto& of_sequence = steps.of(sequence);
        if (first_head) {  // keys that the last block does not see
            std::fill_n(work.dk, of_sequence.back().block.first_key * d, 0.0F);
            std::fill_n(work.dv, of_sequence.back().block.first_key * d, 0.0F);
        }
        for (size_t index = of_sequence.size(); index-- > 0;) {
            const auto& [block, product] = of_sequence[index];
            const T* q_block = q + block.begin * qkv.stride;
            const T* dout_block = dout.as<T>() + (token + block.begin) * dout.stride + head * d;
            const T* out_block = out.as<T>() + (token + block.begin) * out.stride + head * d;
            const int64_t first_key = block.first_key * qkv.stride;
            run_matmul(engine, *product.scores, thread, q_block, k + first_key, work.scores);
            run_matmul(engine, *product.dp, thread, dout_block, v + first_key, work.gradients);
            for (int64_t i = 0; i < block.rows; ++i) {
                float delta = 0.0F;  // dout . out = sum_j p_j dp_j
                const T* dout_row = dout_block + i * dout.stride;
                const T* out_row = out_block + i * out.stride;
#pragma omp simd reduction(+ : delta)
                for (int64_t j = 0; j < d; ++j)
                    delta += to_float(dout_row[j]) * to_float(out_row[j]);
                const float row_log_sum =
                    log_sum_exp.as<float>()[(token + block.begin + i) * log_sum_exp.stride + head];
                softmax_gradient_row<kCapped>(work.scores + i * stride, work.gradients + i * stride,
                                              block.visible(i), block.keys(), score, row_log_sum,
                                              delta, p + i * stride, ds + i * stride);
            }
            const bool stores = first_head && product.first_dv != nullptr;
            run_matmul(engine, stores ? *product.first_dv : *product.dv, thread, p, dout_block,
                       work.dv + block.first_key * d);
            run_matmul(engine, stores ? *product.first_dk : *product.dk, thread, ds, q_block,
                       work.dk + block.first_key * d);
            run_matmul(engine, *product.dq, thread, ds, k + first_key,
                       dq + block.begin * dqkv.stride);
        }
        if ((head + 1) % queries_per_key != 0) return;
        const auto store = [&](const float* from, T* to) {
            for (int64_t t = 0; t < shape.seq_length; ++t) {
#pragma omp simd
                for (int64_t j = 0; j < d; ++j) {
                    to[t * dqkv.stride + j] = from_float<T>(from[t * d + j]);
                }
            }
        };
        T* dk = dqkv.as<T>() + token * dqkv.stride + k_column;
        store(work.dk, dk);
        store(work.dv, dk + shape.kv_columns());
    });
}

}  // namespace

int64_t attention_workspace_bytes(AttentionShape shape, DType type, int threads) {
    return bytes_per_thread(shape, type) * threads;
}

void causal_attention_forward(Context& ctx, ConstTensor qkv, AttentionShape shape,
                              std::span<const int32_t> first_visible, Tensor out,
                              Tensor log_sum_exp, std::span<std::byte> workspace) {
    require_arguments(ctx, qkv, shape, first_visible, out, log_sum_exp, workspace);
    if (out.size() == 0) return;
    ctx.engine().bind_thread();
    with_type(qkv.dtype, [&]<typename T>() {
        forward<T>(ctx, qkv, shape, first_visible, out, log_sum_exp, workspace);
    });
}

/// A thread adds up dk and dv of a key head: at most sequences * kv_heads threads work.
void causal_attention_backward(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor out,
                               ConstTensor log_sum_exp, AttentionShape shape,
                               std::span<const int32_t> first_visible, Tensor dqkv,
                               std::span<std::byte> workspace) {
    require_arguments(ctx, qkv, shape, first_visible, out, log_sum_exp, workspace);
    require_attention_gradients(dout, qkv, out, dqkv);
    if (out.size() == 0) return;
    ctx.engine().bind_thread();
    with_type(qkv.dtype, [&]<typename T>() {
        (shape.softcap > 0 ? backward<true, T>
                           : backward<false, T>)(ctx, dout, qkv, out, log_sum_exp, shape,
                                                 first_visible, dqkv, workspace);
    });
}

}  // namespace vocabpipe::kernels::host

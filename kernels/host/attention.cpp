// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention_checks.hpp"
#include "kernels/bf16.hpp"
#include "kernels/check.hpp"
#include "kernels/host/attention_blocks.hpp"
#include "kernels/host/attention_panels.hpp"
#include "kernels/host/matmul.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/softmax_rows.hpp"

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
/// Rows of scores are a multiple of 16 elements long: whole 512-bit vectors of fp32.
int64_t score_stride(AttentionShape shape) {
    return round_up(block_keys(shape), 16);
}

/// One thread's scratch memory; all parts start on cache lines.
struct Blocks {
    float* scores;         ///< (block, keys): q k^T
    float* gradients;      ///< (block, keys): dout v^T
    void* probabilities;   ///< (block, keys) of the run's type; fp32: the same memory as scores
    void* score_gradient;  ///< (block, keys) of the run's type; fp32: the same memory as gradients
    float* dk;             ///< (s, head_size)
    float* dv;             ///< (s, head_size)
};

/// Enough for the paths with and without AVX-512, so that plans for other machines are the same.
int64_t bytes_per_thread(AttentionShape shape, DType type) {
    const int64_t panels = attention_panels_bytes(shape.seq_length, shape.head_size, type);
    const int64_t block = block_rows(shape) * score_stride(shape);
    const int64_t narrow = type == DType::fp32 ? 0 : 2 * round_up(block * size_of(type), 64);
    const int64_t sums = 2 * round_up(shape.seq_length * shape.head_size * 4, 64);
    return std::max(2 * round_up(block * 4, 64) + narrow + sums, panels);
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

/// Plans the blocks of each sequence: `prepare(block, is_last)` returns a block's products. Without
/// documents all sequences share one plan.
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
/// one thread. No other pair writes what these write, so results do not depend on the distribution
/// over threads.
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

void require_arguments(Context& ctx, ConstTensor qkv, AttentionShape shape,
                       std::span<const int32_t> first_visible, ConstTensor out,
                       ConstTensor log_sum_exp, std::span<std::byte> workspace) {
    require_attention(qkv, shape, first_visible, out, log_sum_exp);
    require_visible_tokens(shape, first_visible);
    require(static_cast<int64_t>(workspace.size()) >=
                attention_workspace_bytes(shape, qkv.dtype, ctx.threads()),
            "workspace of attention_workspace_bytes()");
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
            // The product takes probabilities that are not normalised; dividing its rows is less
            // work.
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
        // The last block of the first head runs first: it stores, and the others add.
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

/// A query head of a sequence.
AttentionHead panel_head(ConstTensor qkv, AttentionShape shape,
                         std::span<const int32_t> first_visible, int64_t sequence, int64_t head) {
    const Score score(shape);
    const int64_t token = sequence * shape.seq_length;
    const ConstTensor tokens = qkv.row_range(token, shape.seq_length);
    const int64_t d = shape.head_size;
    const int64_t k = shape.query_columns() + head / (shape.heads / shape.kv_heads) * d;
    return {.type = qkv.dtype,
            .length = shape.seq_length,
            .size = d,
            .q = tokens.column_range(head * d, d).data,
            .k = tokens.column_range(k, d).data,
            .v = tokens.column_range(k + shape.kv_columns(), d).data,
            .stride = qkv.stride,
            .scale = score.scale,
            .cap = score.cap,
            .window = shape.window,
            .first_visible = first_visible.empty() ? nullptr : first_visible.data() + token};
}

std::byte* panel_memory(std::span<std::byte> workspace, int thread, AttentionShape shape,
                        DType type) {
    return workspace.data() + thread * bytes_per_thread(shape, type);
}

void forward_in_panels(Context& ctx, ConstTensor qkv, AttentionShape shape,
                       std::span<const int32_t> first_visible, Tensor out, Tensor log_sum_exp,
                       std::span<std::byte> workspace) {
    for_each_head(ctx, shape, 1, [&](int64_t sequence, int64_t head, int thread) {
        const int64_t token = sequence * shape.seq_length;
        const Tensor of_head = out.row_range(token, shape.seq_length)
                                   .column_range(head * shape.head_size, shape.head_size);
        attention_panels_forward(
            panel_head(qkv, shape, first_visible, sequence, head),
            {.out = of_head.data,
             .stride = out.stride,
             .log_sum_exp = log_sum_exp.as<float>() + token * log_sum_exp.stride + head,
             .log_sum_exp_stride = log_sum_exp.stride},
            panel_memory(workspace, thread, shape, qkv.dtype));
    });
}

void backward_in_panels(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor out,
                        ConstTensor log_sum_exp, AttentionShape shape,
                        std::span<const int32_t> first_visible, Tensor dqkv,
                        std::span<std::byte> workspace) {
    const int64_t queries_per_key = shape.heads / shape.kv_heads;
    // One thread sums dk and dv of the heads that share k and v, in order.
    for_each_head(ctx, shape, queries_per_key, [&](int64_t sequence, int64_t head, int thread) {
        const int64_t token = sequence * shape.seq_length;
        const int64_t d = shape.head_size;
        const int64_t k = shape.query_columns() + head / queries_per_key * d;
        const auto part = [&](auto tensor, int64_t column) {
            return tensor.row_range(token, shape.seq_length).column_range(column, d).data;
        };
        attention_panels_backward(
            panel_head(qkv, shape, first_visible, sequence, head),
            {.dout = part(dout, head * d),
             .out = part(out, head * d),
             .dout_stride = dout.stride,
             .out_stride = out.stride,
             .log_sum_exp = log_sum_exp.as<float>() + token * log_sum_exp.stride + head,
             .log_sum_exp_stride = log_sum_exp.stride,
             .dq = part(dqkv, head * d),
             .dk = part(dqkv, k),
             .dv = part(dqkv, k + shape.kv_columns()),
             .stride = dqkv.stride,
             .first = head % queries_per_key == 0,
             .last = (head + 1) % queries_per_key == 0},
            panel_memory(workspace, thread, shape, qkv.dtype));
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
    if (multiplies_with_avx512(ctx.engine(), qkv.dtype)) {
        return forward_in_panels(ctx, qkv, shape, first_visible, out, log_sum_exp, workspace);
    }
    with_type(qkv.dtype, [&]<typename T>() {
        forward<T>(ctx, qkv, shape, first_visible, out, log_sum_exp, workspace);
    });
}

/// One thread adds up dk and dv of a key head, so at most sequences * kv_heads threads work.
void causal_attention_backward(Context& ctx, ConstTensor dout, ConstTensor qkv, ConstTensor out,
                               ConstTensor log_sum_exp, AttentionShape shape,
                               std::span<const int32_t> first_visible, Tensor dqkv,
                               std::span<std::byte> workspace) {
    require_arguments(ctx, qkv, shape, first_visible, out, log_sum_exp, workspace);
    require_attention_gradients(dout, qkv, out, dqkv);
    if (out.size() == 0) return;
    ctx.engine().bind_thread();
    if (multiplies_with_avx512(ctx.engine(), qkv.dtype)) {
        return backward_in_panels(ctx, dout, qkv, out, log_sum_exp, shape, first_visible, dqkv,
                                  workspace);
    }
    with_type(qkv.dtype, [&]<typename T>() {
        (shape.softcap > 0 ? backward<true, T>
                           : backward<false, T>)(ctx, dout, qkv, out, log_sum_exp, shape,
                                                 first_visible, dqkv, workspace);
    });
}

}  // namespace vocabpipe::kernels::host

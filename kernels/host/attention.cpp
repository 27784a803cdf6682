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
    return std::min(kBlockRows, shape.query_count());
}
/// The most keys that a whole block of queries sees.
int64_t block_keys(AttentionShape shape) {
    return shape.window > 0 ? std::min(shape.window - 1 + kBlockRows, shape.seq_length)
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
    float* dv;             ///< (s, value_size); forward: (block, value_size), a product p v
};

/// Rows of dk and dv.
int64_t rows_of_sums(AttentionShape shape) {
    return std::max(shape.seq_length, block_rows(shape));
}

/// Enough for the paths with and without AVX-512, so that plans for other machines are the same.
int64_t bytes_per_thread(AttentionShape shape, DType type) {
    const int64_t panels =
        attention_panels_bytes(shape.seq_length, shape.head_size, shape.value_size(), type);
    const int64_t block = block_rows(shape) * score_stride(shape);
    const int64_t narrow = type == DType::fp32 ? 0 : 2 * round_up(block * size_of(type), 64);
    const int64_t sums = round_up(rows_of_sums(shape) * shape.head_size * 4, 64) +
                         round_up(rows_of_sums(shape) * shape.value_size() * 4, 64);
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
    result.dk = floats(rows_of_sums(shape) * shape.head_size);
    result.dv = floats(rows_of_sums(shape) * shape.value_size());
    return result;
}

/// A block of queries and the products that it needs.
template <typename Products>
struct Step {
    RowBlock block;
    Products products;
};

/// Plans the blocks of each sequence: `products_of(block)` returns a block's products. Without
/// documents all sequences share one plan.
template <typename Products>
class Steps {
public:
    template <typename ProductsOf>
    Steps(const AttentionShape& shape, std::span<const int32_t> first_visible,
          ProductsOf&& products_of)
        : of_(first_visible.empty() ? 1 : static_cast<size_t>(shape.sequences)) {
        const auto length = first_visible.empty() ? 0 : static_cast<size_t>(shape.query_count());
        for (size_t sequence = 0; sequence < of_.size(); ++sequence) {
            const auto blocks = row_blocks(shape, first_visible.subspan(sequence * length, length));
            for (const RowBlock& block : blocks) {
                of_[sequence].push_back({block, products_of(block)});
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

void require_arguments(Context& ctx, ConstTensor q, ConstTensor kv, AttentionShape shape,
                       std::span<const int32_t> first_visible, ConstTensor out,
                       ConstTensor log_sum_exp, std::span<std::byte> workspace) {
    require_attention(q, kv, shape, first_visible, out, log_sum_exp);
    require_visible_tokens(shape, first_visible);
    require(static_cast<int64_t>(workspace.size()) >=
                attention_workspace_bytes(shape, q.dtype, ctx.threads()),
            "workspace of attention_workspace_bytes()");
}

/// The columns of a tensor of queries, or of the output, that are a head's in one sequence.
template <typename AnyTensor>
AnyTensor of_queries(AnyTensor tensor, const AttentionShape& shape, int64_t sequence,
                     int64_t head) {
    const int64_t size = tensor.cols / shape.heads;
    return tensor.row_range(sequence * shape.query_count(), shape.query_count())
        .column_range(head * size, size);
}
/// The columns of k | v, or of their gradients, that a query head reads in one sequence.
template <typename AnyTensor>
struct KeysValues {
    AnyTensor k, v;

    KeysValues(AnyTensor kv, const AttentionShape& shape, int64_t sequence, int64_t head) {
        const AnyTensor tokens = kv.row_range(sequence * shape.seq_length, shape.seq_length);
        const int64_t kv_head = head / (shape.heads / shape.kv_heads);
        const int64_t values = shape.value_size();
        k = tokens.column_range(kv_head * shape.head_size, shape.head_size);
        v = tokens.column_range(shape.key_columns() + kv_head * values, values);
    }
};

template <typename T>
void forward(Context& ctx, ConstTensor q, ConstTensor kv, AttentionShape shape,
             std::span<const int32_t> first_visible, Tensor out, Tensor log_sum_exp,
             std::span<std::byte> workspace) {
    const int64_t values = shape.value_size();
    const int64_t stride = score_stride(shape);
    const Score score(shape);

    struct Products {
        MatmulShape scores;  ///< (rows, keys) = q k^T
        MatmulShape out;     ///< (rows, values) fp32 = p v
    };
    const auto products_of = [&](const RowBlock& block) -> Products {
        const MatmulShape scores{.m = block.rows,
                                 .n = block.keys(),
                                 .k = shape.head_size,
                                 .a_stride = q.stride,
                                 .b_stride = kv.stride,
                                 .c_stride = stride,
                                 .ab_type = q.dtype,
                                 .transpose_b = true};
        const MatmulShape weighted{.m = block.rows,
                                   .n = values,
                                   .k = block.keys(),
                                   .a_stride = stride,
                                   .b_stride = kv.stride,
                                   .c_stride = values,
                                   .ab_type = q.dtype};
        return {scores, weighted};
    };
    const Steps<Products> steps(shape, first_visible, products_of);

    for_each_head(ctx, shape, 1, [&](int64_t sequence, int64_t head, int thread) {
        const Blocks work = blocks_of_thread(workspace, thread, shape, q.dtype);
        T* p = static_cast<T*>(work.probabilities);
        const T* q_head = of_queries(q, shape, sequence, head).template as<T>();
        const KeysValues keys(kv, shape, sequence, head);
        T* out_head = of_queries(out, shape, sequence, head).template as<T>();
        float* sums =
            log_sum_exp.as<float>() + sequence * shape.query_count() * log_sum_exp.stride + head;
        float inverse_sum[kBlockRows];
        for (const auto& [block, products] : steps.of(sequence)) {
            const int64_t first_key = block.first_key * kv.stride;
            run_matmul(ctx.engine(), products.scores, thread, q_head + block.begin * q.stride,
                       keys.k.template as<T>() + first_key, work.scores);
            for (int64_t i = 0; i < block.rows; ++i) {
                float maximum;
                const float sum = softmax_row(work.scores + i * stride, block.visible(i),
                                              block.keys(), score, maximum, p + i * stride);
                inverse_sum[i] = 1.0F / sum;
                sums[(block.begin + i) * log_sum_exp.stride] = maximum + std::log(sum);
            }
            // The product takes probabilities that are not normalised; dividing its rows is less
            // work.
            float* product = work.dv;
            run_matmul(ctx.engine(), products.out, thread, p, keys.v.template as<T>() + first_key,
                       product);
            for (int64_t i = 0; i < block.rows; ++i) {
                T* to = out_head + (block.begin + i) * out.stride;
#pragma omp simd
                for (int64_t j = 0; j < values; ++j) {
                    to[j] = from_float<T>(product[i * values + j] * inverse_sum[i]);
                }
            }
        }
    });
}

template <bool kCapped, typename T>
void backward(Context& ctx, ConstTensor dout, ConstTensor q, ConstTensor kv, ConstTensor out,
              ConstTensor log_sum_exp, AttentionShape shape, std::span<const int32_t> first_visible,
              Tensor dq, Tensor dkv, std::span<std::byte> workspace) {
    const int64_t d = shape.head_size, values = shape.value_size();
    const int64_t stride = score_stride(shape);
    const Score score(shape);
    const int64_t queries_per_key = shape.heads / shape.kv_heads;

    struct Products {
        MatmulShape scores;  ///< (rows, keys) = q k^T
        MatmulShape dp;      ///< (rows, keys) = dout v^T
        MatmulShape dv;      ///< (keys, values) [+]= p^T dout
        MatmulShape dk;      ///< (keys, d) [+]= ds^T q
        MatmulShape dq;      ///< (rows, d) = ds k, of the run's type
    };
    const auto products_of = [&](const RowBlock& block) -> Products {
        MatmulShape scores{.m = block.rows, .n = block.keys(), .k = d};
        scores.ab_type = q.dtype;
        scores.a_stride = q.stride;
        scores.b_stride = kv.stride;
        scores.c_stride = stride;
        scores.transpose_b = true;
        MatmulShape dp = scores;
        dp.k = values;
        dp.a_stride = dout.stride;
        MatmulShape dv{.m = block.keys(), .n = values, .k = block.rows};
        dv.ab_type = q.dtype;
        dv.a_stride = stride;
        dv.b_stride = dout.stride;
        dv.c_stride = values;
        dv.transpose_a = true;
        MatmulShape dk = dv;
        dk.n = dk.c_stride = d;
        dk.b_stride = q.stride;
        MatmulShape for_dq{.m = block.rows, .n = d, .k = block.keys()};
        for_dq.ab_type = q.dtype;
        for_dq.a_stride = stride;
        for_dq.b_stride = kv.stride;
        for_dq.c_stride = dq.stride;
        for_dq.c_type = dq.dtype;
        return {scores, dp, dv, dk, for_dq};
    };
    const Steps<Products> steps(shape, first_visible, products_of);

    // One thread sums dk and dv of the heads that share k and v, in order.
    for_each_head(ctx, shape, queries_per_key, [&](int64_t sequence, int64_t head, int thread) {
        auto& engine = ctx.engine();
        const Blocks work = blocks_of_thread(workspace, thread, shape, q.dtype);
        T* p = static_cast<T*>(work.probabilities);
        T* ds = static_cast<T*>(work.score_gradient);
        const T* q_head = of_queries(q, shape, sequence, head).template as<T>();
        const T* dout_head = of_queries(dout, shape, sequence, head).template as<T>();
        const T* out_head = of_queries(out, shape, sequence, head).template as<T>();
        T* dq_head = of_queries(dq, shape, sequence, head).template as<T>();
        const KeysValues keys(kv, shape, sequence, head);
        const float* sums =
            log_sum_exp.as<float>() + sequence * shape.query_count() * log_sum_exp.stride + head;
        const bool first_head = head % queries_per_key == 0;
        const auto& of_sequence = steps.of(sequence);
        if (first_head) {  // keys that the last block does not see
            std::fill_n(work.dk, of_sequence.back().block.first_key * d, 0.0F);
            std::fill_n(work.dv, of_sequence.back().block.first_key * values, 0.0F);
        }
        for (size_t index = of_sequence.size(); index-- > 0;) {
            const auto& [block, product] = of_sequence[index];
            const T* q_block = q_head + block.begin * q.stride;
            const T* dout_block = dout_head + block.begin * dout.stride;
            const T* out_block = out_head + block.begin * out.stride;
            const T* k = keys.k.template as<T>() + block.first_key * kv.stride;
            const T* v = keys.v.template as<T>() + block.first_key * kv.stride;
            run_matmul(engine, product.scores, thread, q_block, k, work.scores);
            run_matmul(engine, product.dp, thread, dout_block, v, work.gradients);
            for (int64_t i = 0; i < block.rows; ++i) {
                float delta = 0.0F;  // dout . out = sum_j p_j dp_j
                const T* dout_row = dout_block + i * dout.stride;
                const T* out_row = out_block + i * out.stride;
#pragma omp simd reduction(+ : delta)
                for (int64_t j = 0; j < values; ++j)
                    delta += to_float(dout_row[j]) * to_float(out_row[j]);
                const float row_log_sum = sums[(block.begin + i) * log_sum_exp.stride];
                softmax_gradient_row<kCapped>(work.scores + i * stride, work.gradients + i * stride,
                                              block.visible(i), block.keys(), score, row_log_sum,
                                              delta, p + i * stride, ds + i * stride);
            }
            // The last block of the first head runs first: it stores, and the others add.
            MatmulShape dv = product.dv, dk = product.dk;
            dv.accumulate = dk.accumulate = !first_head || index + 1 < of_sequence.size();
            run_matmul(engine, dv, thread, p, dout_block, work.dv + block.first_key * values);
            run_matmul(engine, dk, thread, ds, q_block, work.dk + block.first_key * d);
            run_matmul(engine, product.dq, thread, ds, k, dq_head + block.begin * dq.stride);
        }
        if ((head + 1) % queries_per_key != 0) return;
        const auto store = [&](const float* from, Tensor to) {
            for (int64_t t = 0; t < to.rows; ++t) {
                T* row = to.as<T>() + t * to.stride;
#pragma omp simd
                for (int64_t j = 0; j < to.cols; ++j) row[j] = from_float<T>(from[t * to.cols + j]);
            }
        };
        const KeysValues gradients(dkv, shape, sequence, head);
        store(work.dk, gradients.k);
        store(work.dv, gradients.v);
    });
}

/// A query head of a sequence.
AttentionHead panel_head(ConstTensor q, ConstTensor kv, AttentionShape shape,
                         std::span<const int32_t> first_visible, int64_t sequence, int64_t head) {
    const Score score(shape);
    const KeysValues keys(kv, shape, sequence, head);
    return {.type = q.dtype,
            .queries = shape.query_count(),
            .length = shape.seq_length,
            .size = shape.head_size,
            .value_size = shape.value_size(),
            .q = of_queries(q, shape, sequence, head).data,
            .k = keys.k.data,
            .v = keys.v.data,
            .q_stride = q.stride,
            .kv_stride = kv.stride,
            .scale = score.scale,
            .cap = score.cap,
            .causal = shape.causal,
            .window = shape.window,
            .first_visible = first_visible.empty()
                                 ? nullptr
                                 : first_visible.data() + sequence * shape.query_count()};
}

std::byte* panel_memory(std::span<std::byte> workspace, int thread, AttentionShape shape,
                        DType type) {
    return workspace.data() + thread * bytes_per_thread(shape, type);
}

void forward_in_panels(Context& ctx, ConstTensor q, ConstTensor kv, AttentionShape shape,
                       std::span<const int32_t> first_visible, Tensor out, Tensor log_sum_exp,
                       std::span<std::byte> workspace) {
    for_each_head(ctx, shape, 1, [&](int64_t sequence, int64_t head, int thread) {
        const int64_t row = sequence * shape.query_count();
        attention_panels_forward(
            panel_head(q, kv, shape, first_visible, sequence, head),
            {.out = of_queries(out, shape, sequence, head).data,
             .stride = out.stride,
             .log_sum_exp = log_sum_exp.as<float>() + row * log_sum_exp.stride + head,
             .log_sum_exp_stride = log_sum_exp.stride},
            panel_memory(workspace, thread, shape, q.dtype));
    });
}

void backward_in_panels(Context& ctx, ConstTensor dout, ConstTensor q, ConstTensor kv,
                        ConstTensor out, ConstTensor log_sum_exp, AttentionShape shape,
                        std::span<const int32_t> first_visible, Tensor dq, Tensor dkv,
                        std::span<std::byte> workspace) {
    const int64_t queries_per_key = shape.heads / shape.kv_heads;
    // One thread sums dk and dv of the heads that share k and v, in order.
    for_each_head(ctx, shape, queries_per_key, [&](int64_t sequence, int64_t head, int thread) {
        const int64_t row = sequence * shape.query_count();
        const KeysValues gradients(dkv, shape, sequence, head);
        attention_panels_backward(
            panel_head(q, kv, shape, first_visible, sequence, head),
            {.dout = of_queries(dout, shape, sequence, head).data,
             .out = of_queries(out, shape, sequence, head).data,
             .dout_stride = dout.stride,
             .out_stride = out.stride,
             .log_sum_exp = log_sum_exp.as<float>() + row * log_sum_exp.stride + head,
             .log_sum_exp_stride = log_sum_exp.stride,
             .dq = of_queries(dq, shape, sequence, head).data,
             .dk = gradients.k.data,
             .dv = gradients.v.data,
             .dq_stride = dq.stride,
             .dkv_stride = dkv.stride,
             .first = head % queries_per_key == 0,
             .last = (head + 1) % queries_per_key == 0},
            panel_memory(workspace, thread, shape, q.dtype));
    });
}

}  // namespace

int64_t attention_workspace_bytes(AttentionShape shape, DType type, int threads) {
    return bytes_per_thread(shape, type) * threads;
}

void causal_attention_forward(Context& ctx, ConstTensor q, ConstTensor kv, AttentionShape shape,
                              std::span<const int32_t> first_visible, Tensor out,
                              Tensor log_sum_exp, std::span<std::byte> workspace) {
    require_arguments(ctx, q, kv, shape, first_visible, out, log_sum_exp, workspace);
    if (out.size() == 0) return;
    ctx.engine().bind_thread();
    if (multiplies_with_avx512(ctx.engine(), q.dtype)) {
        return forward_in_panels(ctx, q, kv, shape, first_visible, out, log_sum_exp, workspace);
    }
    with_type(q.dtype, [&]<typename T>() {
        forward<T>(ctx, q, kv, shape, first_visible, out, log_sum_exp, workspace);
    });
}

/// One thread adds up dk and dv of a key head, so at most sequences * kv_heads threads work.
void causal_attention_backward(Context& ctx, ConstTensor dout, ConstTensor q, ConstTensor kv,
                               ConstTensor out, ConstTensor log_sum_exp, AttentionShape shape,
                               std::span<const int32_t> first_visible, Tensor dq, Tensor dkv,
                               std::span<std::byte> workspace) {
    require_arguments(ctx, q, kv, shape, first_visible, out, log_sum_exp, workspace);
    require_attention_gradients(dout, q, kv, out, dq, dkv);
    if (out.size() == 0) return;
    ctx.engine().bind_thread();
    if (multiplies_with_avx512(ctx.engine(), q.dtype)) {
        return backward_in_panels(ctx, dout, q, kv, out, log_sum_exp, shape, first_visible, dq, dkv,
                                  workspace);
    }
    with_type(q.dtype, [&]<typename T>() {
        (shape.softcap > 0 ? backward<true, T>
                           : backward<false, T>)(ctx, dout, q, kv, out, log_sum_exp, shape,
                                                 first_visible, dq, dkv, workspace);
    });
}

}  // namespace vocabpipe::kernels::host

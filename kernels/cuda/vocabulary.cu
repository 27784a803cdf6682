// SPDX-License-Identifier: Apache-2.0
// The logits are computed in chunks of columns, for all tokens at once: one product only reads each
// row of W, however few tokens there are, and X, read once per chunk, is the small operand.
//
// How far S and T can stay below the rate of their products: with N tokens, v rows and h columns in
// bf16, the products are 6 N h v FLOPs. In addition, memory moves
//
//     S   logits written by their product and read again, fp32       8 N v bytes
//         exp_logits written (the two products that read it are not counted)   2 N v
//     T   u = c u + d W_y, read and written                          8 N h (+ 2 N h for W_y)
//         X read, c X written, label rows of dW read and written      <= 12 N h
//
// that is 10 N v + 22 N h. At N = h = 4096 and a product rate of 700 TFLOP/s: v = 131072 takes 18.8
// ms, and the bytes 1.7 ms on an H100 (3.35 TB/s), 1.2 ms on an H200 (4.8 TB/s); v = 16384: 2.36
// ms, and 0.31 or 0.22 ms. A product writes its logits while it computes, which hides 4 N v of
// them, and where a chunk fits the L2 cache (v = 16384: 32 MiB) it is read from there. Two passes
// over the logits, for an exact maximum first, would cost another 4 N v; hence the reference point,
// which needs one. (Where dW is overwritten, in the first microbatch of a step, its label rows come
// after the product and read X again: 2 N h more.)
//
// Bytes are not the only cost: a kernel that depends on the one before takes 3 us to start and to
// drain, and a score kernel that waits more than it reads takes longer than its bytes. Predicted
// for an H200, with 8 chunks:
//
//     v        score kernels                              T's two, sort   beside products   ratio
//     16384    8 x (34 MB of L2 at 5.5 TB/s + 3 us)     35 + 42 + 20    72 + 97 us        0.93
//     32768    8 x (67 + 34 MB of memory + 3 us)          the same        192 + 97 us       0.94
//     131072   8 x (268 + 134 MB of memory + 3 us)        the same        694 + 97 us       0.96
//
// where the 16.8 MB that a chunk writes at v = 16384 hide behind what it reads of L2. A block of
// 256 threads per row, as before, waited 18 to 20 us per chunk at v = 16384, whatever the bytes:
// 0.90. Measured on one (docs/performance.md): 0.82 to 0.83, 0.91, and 0.88 at 128256, of which the
// first algorithm of cuBLASLt's heuristic loses 0.03 to 0.05; the score kernels take 90 us of a
// chunk of 16128 columns, as predicted.
//
// A chunk is an eighth of the columns, N v / 8 logits: 32 MiB at v = 16384, a product of 256 tiles
// of 128 x 256, which 132 multiprocessors take in two rounds, 97 % full. Smaller chunks would leave
// multiprocessors idle, so no chunk is cut below 32 MiB.
//
// Bytes of a microbatch in flight, bf16 (fp32):
//
//     S to T      exp_logits                      2 N v (4 N v)
//                 statistics, factors            24 N
//                 u                              4 N h, from S on with one barrier, else within T
//     within S    workspace: a chunk of logits   N v / 2, but not below 32 MiB
//     within T    workspace: c X                 2 N h (4 N h)
//
// So S and T take at most 1.25 times the bf16 exp_logits where that is 128 MiB or more and h <=
// v / 4, next to the lane's 32 MiB that all operators share.
#include "kernels/check.hpp"
#include "kernels/cuda/gemm.hpp"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/operators.hpp"
#include "kernels/cuda/row_additions.hpp"
#include "kernels/cuda/row_sums.hpp"
#include "kernels/cuda/vocabulary_score.cuh"
#include "kernels/host_and_device.hpp"
#include "kernels/token_totals.hpp"
#include "kernels/vocabulary_checks.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

constexpr int kThreads = 256;

constexpr int64_t kChunks = 8;                       ///< of 1/4 of the bf16 exp_logits's bytes
constexpr int64_t kFewestLogits = int64_t{8} << 20;  ///< per chunk, 32 MiB
constexpr int64_t kColumnMultiple = 256;             ///< chunks: whole tiles of the product

/// Writes the statistics of a shard without rows.
__global__ void __launch_bounds__(kThreads)
    no_statistics_kernel(float* __restrict__ statistics, int64_t stride, int64_t tokens,
                         int64_t entropy, int64_t top_two, int64_t best, int64_t best_count) {
    const int64_t n = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (n >= tokens) return;
    float* const row = statistics + n * stride;
    row[0] = -infinity();
    row[1] = row[2] = row[3] = 0;
    if (entropy >= 0) row[entropy] = 0;
    if (top_two >= 0) row[top_two] = row[top_two + 1] = -infinity();
    for (int64_t i = 0; i < best_count; ++i) {
        row[best + i] = -infinity();
        row[best + best_count + i] = -1;
    }
}

struct Combination {
    StatisticsOfShards statistics;
    LossTerms terms;
    const int32_t* labels;
    const float* g;
    const float* by_entropy;  ///< or null
    int64_t mine;             ///< first row of this shard's statistics; -1: the shard is empty
    int64_t first_row, end_row;
    float* factors;  ///< or null
    int64_t factor_stride;
    float* records;  ///< or null
    int wanted;      ///< records
    struct Record {
        TokenRecord record;
        int64_t first;    ///< row of its first number among the records
        int64_t numbers;  ///< per token
    } record[kEveryTokenRecord.size()];
};

/// A thread per token.
__global__ void __launch_bounds__(kThreads) combine_kernel(Combination c) {
    const int64_t n = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    const int64_t tokens = c.statistics.tokens;
    if (n >= tokens) return;
    const int32_t label = c.labels[n];
    const TokenTotals totals = fold_token(c.statistics, n, label);
    if (c.factors != nullptr) {
        const bool by_entropy = c.by_entropy != nullptr;
        const double weight = label < 0 ? 0.0 : static_cast<double>(c.g[n]);
        const double eta = label < 0 || !by_entropy ? 0.0 : static_cast<double>(c.by_entropy[n]);
        TokenFactors made;
        if ((weight != 0 || eta != 0) && c.mine >= 0) {
            const double m = c.statistics.data[(c.mine + n) * c.statistics.stride];
            made = by_entropy ? factors_of(totals, c.terms, m, weight, eta)
                              : factors_of(totals, c.terms, m, weight);
        }
        const bool owned = label >= c.first_row && label < c.end_row;
        c.factors[n * c.factor_stride] = static_cast<float>(made.softmax);
        c.factors[n * c.factor_stride + 1] = owned ? static_cast<float>(made.label) : 0.0F;
        if (by_entropy) {
            c.factors[n * c.factor_stride + 2] = static_cast<float>(made.entropy);
            c.factors[n * c.factor_stride + 3] =
                c.mine >= 0 ? c.statistics.data[(c.mine + n) * c.statistics.stride] : 0.0F;
        }
    }
    for (int i = 0; c.records != nullptr && i < c.wanted; ++i) {
        const Combination::Record& wanted = c.record[i];
        if (wanted.record == TokenRecord::label_rank) continue;
        float* const made = c.records + wanted.first * tokens + n;
        if (label < 0) {
            for (int64_t k = 0; k < wanted.numbers; ++k) made[k * tokens] = 0;
        } else if (wanted.record == TokenRecord::top_logprobs) {
            fold_best(
                c.statistics, n, totals, label,
                {.logprobs = made, .ids = made + wanted.numbers / 2 * tokens, .stride = tokens});
        } else {
            *made = static_cast<float>(record_of(wanted.record, totals, c.terms));
        }
    }
}

/// A warp per token: how many rows of the shard come before the label, or are it.
__global__ void __launch_bounds__(kScoreThreads)
    label_ranks_kernel(const float* __restrict__ logits, int64_t stride, int64_t rows,
                       const float* __restrict__ by_shard, int64_t statistics_stride,
                       int64_t shards, const int32_t* __restrict__ labels, int64_t tokens,
                       int64_t first_row, float* __restrict__ counts) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int64_t n =
        int64_t{blockIdx.x} * (kScoreThreads / kWarpThreads) + threadIdx.x / kWarpThreads;
    if (n >= tokens) return;  // a whole warp
    const int64_t label = labels[n] - first_row;
    float own = 0;  // the label's logit: all shards but one have 0
    for (int64_t k = 0; k < shards; ++k) own += by_shard[(k * tokens + n) * statistics_stride + 2];
    int before = 0;
    for (int64_t j = lane; labels[n] >= 0 && j < rows; j += kWarpThreads) {
        const float z = logits[n * stride + j];
        const bool tied = z == own && j < label && z > -infinity();
        if (z > own || tied || j == label) ++before;
    }
    before = warp_sum(before);
    if (lane == 0) counts[n] = static_cast<float>(before);
}

/// e = e (c + h log e) s, and c = 1; a block per token. 0 stays 0. `inverse_cap`: of z; 0: none.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    weigh_kernel(T* __restrict__ exp_logits, int64_t stride, int64_t cols,
                 float* __restrict__ factors, int64_t factor_stride, float inverse_cap) {
    const int64_t n = blockIdx.x;
    T* const e = exp_logits + n * stride;
    float* const factor = factors + n * factor_stride;
    const float c = factor[0];
    const float h = factor[2];
    const float m = factor[3];
    __syncthreads();
    for (int64_t j = threadIdx.x; j < cols; j += kThreads) {
        const float value = to_float(e[j]);
        const float log = logf(fmaxf(value, FLT_MIN));
        const float tanh = (m + log) * inverse_cap;
        e[j] = from_float<T>(value * (c + h * log) * fmaxf(1.0F - tanh * tanh, 0.0F));
    }
    if (threadIdx.x == 0) factor[0] = 1;
}

/// u_n = c_n u_n + d_n W_{y_n} - g_n uniform sum_j W_j; a block per token. row_sum null: without
/// the last term.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    input_gradient_kernel(float* __restrict__ u, int64_t u_stride, int64_t cols,
                          const float* __restrict__ factors, int64_t factor_stride,
                          const T* __restrict__ w, int64_t w_stride,
                          const int32_t* __restrict__ labels, const float* __restrict__ g,
                          int64_t first_row, int64_t rows, double uniform,
                          const double* __restrict__ row_sum) {
    const int64_t n = blockIdx.x;
    const float factor = factors[n * factor_stride];
    const float label_factor = factors[n * factor_stride + 1];
    const int64_t label = labels[n] < 0 ? -1 : labels[n] - first_row;
    const bool owned = label >= 0 && label < rows;
    const double share = labels[n] < 0 ? 0.0 : g[n] * uniform;
    for (int64_t col = int64_t{threadIdx.x} * kCount; col < cols; col += kThreads * kCount) {
        Vector<kCount> value;
        value.load(u + n * u_stride + col);
        for (int i = 0; i < kCount; ++i) value[i] *= factor;
        if (owned) {
            Vector<kCount> row;
            row.load(w + label * w_stride + col);
            for (int i = 0; i < kCount; ++i) value[i] += label_factor * row[i];
        }
        if (row_sum != nullptr) {
            for (int i = 0; i < kCount; ++i) {
                value[i] = static_cast<float>(value[i] - share * row_sum[col + i]);
            }
        }
        value.store(u + n * u_stride + col);
    }
}

/// scaled (dense) = c x, rounded to T; a block per token.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    scale_rows_kernel(const T* __restrict__ x, int64_t x_stride, const float* __restrict__ factors,
                      int64_t factor_stride, T* __restrict__ scaled, int64_t cols) {
    const int64_t n = blockIdx.x;
    const float factor = factors[n * factor_stride];
    for (int64_t col = int64_t{threadIdx.x} * kCount; col < cols; col += kThreads * kCount) {
        Vector<kCount> value;
        value.load(x + n * x_stride + col);
        for (int i = 0; i < kCount; ++i) value[i] *= factor;
        value.store(scaled + n * cols + col);
    }
}

/// Subtracts uniform row_sum from every row of dw.
template <int kCount>
__global__ void __launch_bounds__(kThreads)
    subtract_kernel(float* __restrict__ dw, int64_t stride, int64_t rows, int64_t cols,
                    double uniform, const double* __restrict__ row_sum) {
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        for (int64_t col = int64_t{threadIdx.x} * kCount; col < cols; col += kThreads * kCount) {
            Vector<kCount> value;
            value.load(dw + row * stride + col);
            for (int i = 0; i < kCount; ++i) {
                value[i] = static_cast<float>(value[i] - uniform * row_sum[col + i]);
            }
            value.store(dw + row * stride + col);
        }
    }
}

int64_t token_count(std::span<const int32_t> labels) {
    return static_cast<int64_t>(labels.size());
}

int64_t rounded_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

/// Columns per chunk of logits: equal chunks, whole tiles.
int64_t chunk_columns(int64_t tokens, int64_t rows) {
    const int64_t logits = std::max(tokens * rows / kChunks, kFewestLogits);
    const int64_t fitting = logits / std::max<int64_t>(tokens, 1);
    const int64_t most = std::max(fitting / kColumnMultiple, int64_t{1}) * kColumnMultiple;
    if (rows <= most) return rows;
    const int64_t chunks = (rows + most - 1) / most;
    return rounded_up((rows + chunks - 1) / chunks, kColumnMultiple);
}

/// Rows of the logits start at 16-byte boundaries.
int64_t logit_stride(int64_t columns) {
    return rounded_up(columns, 4);
}

/// Columns per chunk in this workspace: fewer if it is smaller than the operator asks for.
int64_t columns_in(std::span<std::byte> workspace, int64_t tokens, int64_t rows) {
    const int64_t logits = static_cast<int64_t>(workspace.size()) / size_of(DType::fp32);
    const int64_t wanted = chunk_columns(tokens, rows);
    if (tokens * logit_stride(wanted) <= logits) return wanted;
    return logits / tokens / kColumnMultiple * kColumnMultiple;
}

bool four_fit(const void* data, int64_t stride, int64_t element_bytes) {
    return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(4 * element_bytes) == 0 &&
           stride % 4 == 0;
}

}  // namespace

/// The workspace that keeps the product efficient. A smaller one, down to 1 KiB per token, works as
/// well, with more chunks and other bits.
int64_t vocabulary_score_workspace_bytes(int64_t tokens, int64_t rows, DType /*type*/) {
    return tokens * logit_stride(chunk_columns(tokens, rows)) * size_of(DType::fp32);
}

/// m is raised above the maximum over the first 2048 columns only when a later logit exceeds it by
/// more than 30; then the stored exponentials are scaled.
void vocabulary_score(Context& ctx, ConstTensor x, ConstTensor w, std::span<const int32_t> labels,
                      const VocabularyShard& shard, const LossOptions& options, Tensor exp_logits,
                      Tensor statistics, Tensor logits, std::span<std::byte> workspace) {
    const int64_t tokens = token_count(labels);
    require_options(options);
    require_score(x, w, tokens, shard, options, exp_logits, statistics, logits);
    if (tokens == 0) return;
    if (shard.rows == 0) {
        launch(ctx, no_statistics_kernel, blocks_for(tokens, kThreads), kThreads,
               statistics.as<float>(), statistics.stride, tokens, entropy_column(options.records),
               top_two_column(options.records), best_column(options.records),
               options.records.best_count());
        return;
    }
    const int64_t all_tokens = ctx.whole_rows(tokens);  // decides bits
    const int64_t columns = columns_in(workspace, all_tokens, shard.rows);
    require(columns > 0, "a workspace of vocabulary_score_workspace_bytes(), or 1 KiB per token");
    require(columns <= 0x7fffffff, "fewer than 2^31 columns at a time");
    auto* const products = reinterpret_cast<float*>(workspace.data());

    for (int64_t begin = 0; begin < shard.rows; begin += columns) {
        const int64_t count = std::min(columns, shard.rows - begin);
        const Tensor xw(products, tokens, count, logit_stride(columns), DType::fp32);
        gemm(ctx, x, false, w.row_range(begin, count), true, xw, false);
        if (options.allowed != nullptr) {
            const int64_t blocks =
                blocks_for(count, kScoreThreads) * int64_t{blocks_for(tokens, kForbiddenTokens)};
            launch(ctx, forbid_kernel, static_cast<unsigned>(blocks), kScoreThreads, products,
                   xw.stride, tokens, begin, static_cast<int>(count), options.allowed);
        }
        const Chunk chunk{.products = products,
                          .product_stride = xw.stride,
                          .tokens = tokens,
                          .begin = begin,
                          .count = static_cast<int>(count),
                          .labels = labels.data(),
                          .first_row = shard.first_row,
                          .statistics = statistics.as<float>(),
                          .statistics_stride = statistics.stride,
                          .want_logit_sum = options.label_smoothing > 0,
                          .top_two = top_two_column(options.records),
                          .best = best_column(options.records),
                          .best_count = static_cast<int>(options.records.best_count())};
        // Chunks begin at multiples of 256 columns, so the alignment of column 0 decides.
        const bool fours = four_fit(xw.data, xw.stride, size_of(DType::fp32)) &&
                           four_fit(exp_logits.data, exp_logits.stride, size_of(exp_logits.dtype));
        with_element_type(exp_logits.dtype, [&]<typename T>() {
            const auto launch_with = [&]<int kRowThreads, bool kEntropy>(auto logit_of) {
                using Cap = decltype(logit_of);
                launch(ctx,
                       fours ? score_kernel<T, kRowThreads, 4, kEntropy, Cap>
                             : score_kernel<T, kRowThreads, 1, kEntropy, Cap>,
                       blocks_for(tokens, kScoreThreads / kRowThreads), kScoreThreads, chunk,
                       logit_of, exp_logits.as<T>(), exp_logits.stride);
            };
            const auto with_entropy = [&]<int kRowThreads>(auto logit_of) {
                if (options.records.has(TokenRecord::entropy)) {
                    launch_with.template operator()<kRowThreads, true>(logit_of);
                } else {
                    launch_with.template operator()<kRowThreads, false>(logit_of);
                }
            };
            const auto score = [&](auto logit_of) {
                if (chunk.top_two >= 0) {
                    launch(ctx, top_two_kernel<decltype(logit_of)>,
                           blocks_for(tokens, kScoreThreads / kWarpThreads), kScoreThreads, chunk,
                           logit_of);
                }
                if (chunk.best >= 0) {
                    launch(ctx, best_kernel<decltype(logit_of)>,
                           blocks_for(tokens, kScoreThreads / kWarpThreads), kScoreThreads, chunk,
                           logit_of);
                }
                if (logits) {
                    launch(ctx, keep_logits_kernel<decltype(logit_of)>,
                           static_cast<unsigned>(tokens), kScoreThreads, chunk, logit_of,
                           logits.as<float>(), logits.stride);
                }
                if (all_tokens >= int64_t{kScoreWarpsPerSm} * ctx.cuda().multiprocessors()) {
                    with_entropy.template operator()<kWarpThreads>(logit_of);
                } else {
                    with_entropy.template operator()<kScoreThreads>(logit_of);
                }
            };
            const float inverse_temperature = 1.0F / options.temperature;
            if (options.logit_softcap > 0) {
                score(Softcapped{options.logit_softcap, inverse_temperature, options.caps_later});
            } else {
                score(Uncapped{inverse_temperature});
            }
        });
    }
}

void vocabulary_input_product(Context& ctx, ConstTensor exp_logits, ConstTensor w, Tensor u) {
    gemm(ctx, exp_logits, false, w, false, u, false);
}

void combine_statistics(Context& ctx, ConstTensor by_shard, std::span<const int32_t> labels,
                        const TokenGradients& gradients, const VocabularyShard& mine, int my_shard,
                        const LossOptions& options, Tensor factors, std::span<float> records) {
    const int64_t tokens = token_count(labels);
    require_options(options);
    require_combination(by_shard, tokens, gradients, my_shard, options, factors, records);
    if (tokens == 0 || (!factors && records.empty())) return;
    Combination combination{.statistics = statistics_of_shards(by_shard, tokens, options),
                            .terms = loss_terms(options, mine),
                            .labels = labels.data(),
                            .g = gradients.loss.data(),
                            .by_entropy = data_of(gradients.entropy),
                            .mine = mine.rows > 0 ? my_shard * tokens : -1,
                            .first_row = mine.first_row,
                            .end_row = mine.first_row + mine.rows,
                            .factors = factors.as<float>(),
                            .factor_stride = factors.stride,
                            .records = data_of(records),
                            .wanted = 0,
                            .record = {}};
    for (const TokenRecord record : options.records.list()) {
        combination.record[combination.wanted++] = {.record = record,
                                                    .first = options.records.index_of(record),
                                                    .numbers = options.records.numbers_of(record)};
    }
    launch(ctx, combine_kernel, blocks_for(tokens, kThreads), kThreads, combination);
}

void label_ranks(Context& ctx, ConstTensor logits, ConstTensor by_shard,
                 std::span<const int32_t> labels, const VocabularyShard& shard,
                 std::span<float> counts) {
    require_label_ranks(logits, by_shard, labels, shard, counts);
    const int64_t tokens = token_count(labels);
    if (tokens == 0) return;
    launch(ctx, label_ranks_kernel, blocks_for(tokens, kScoreThreads / kWarpThreads), kScoreThreads,
           logits.as<float>(), logits.stride, shard.rows, by_shard.as<float>(), by_shard.stride,
           by_shard.rows / tokens, labels.data(), tokens, shard.first_row, counts.data());
}

void weigh_by_entropy(Context& ctx, const LossOptions& options, Tensor exp_logits, Tensor factors) {
    require_weigh_by_entropy(options, exp_logits, factors);
    if (exp_logits.rows == 0) return;
    const float inverse_cap =
        options.logit_softcap > 0 ? options.temperature / options.logit_softcap : 0.0F;
    with_element_type(exp_logits.dtype, [&]<typename T>() {
        launch(ctx, weigh_kernel<T>, static_cast<unsigned>(exp_logits.rows), kThreads,
               exp_logits.as<T>(), exp_logits.stride, exp_logits.cols, factors.as<float>(),
               factors.stride, inverse_cap);
    });
}

/// None: the sum over W's rows is in the lane's workspace.
int64_t vocabulary_input_gradient_workspace_bytes(int64_t /*hidden*/) {
    return 0;
}

void vocabulary_input_gradient(Context& ctx, Tensor u, ConstTensor factors, ConstTensor w,
                               std::span<const int32_t> labels, std::span<const float> g,
                               const VocabularyShard& shard, const LossOptions& options,
                               std::span<std::byte> /*workspace*/) {
    const int64_t tokens = token_count(labels);
    require_input_gradient(u, factors, w, tokens, shard);
    require(static_cast<int64_t>(g.size()) == tokens, "one g per label");
    if (u.size() == 0) return;
    const bool smooth = options.label_smoothing > 0 && shard.rows > 0;
    const double uniform = options.label_smoothing / static_cast<double>(shard.vocab_size);
    const double* const row_sum = smooth ? sum_rows(ctx, w, {}, {}) : nullptr;
    with_element_type(w.dtype, [&]<typename T>() {
        const auto run = [&]<int kCount>() {
            launch(ctx, input_gradient_kernel<T, kCount>, static_cast<unsigned>(tokens), kThreads,
                   u.as<float>(), u.stride, u.cols, factors.as<float>(), factors.stride, w.as<T>(),
                   w.stride, labels.data(), g.data(), shard.first_row, shard.rows, uniform,
                   row_sum);
        };
        with_vectors<widest<float>()>(run, u, w);
    });
}

int64_t vocabulary_weight_gradient_workspace_bytes(int64_t tokens, int64_t hidden, DType type) {
    return tokens * hidden * size_of(type);
}

void vocabulary_weight_gradient(Context& ctx, ConstTensor x, ConstTensor exp_logits,
                                ConstTensor factors, std::span<const int32_t> labels,
                                std::span<const float> g, const VocabularyShard& shard,
                                const LossOptions& options, Tensor dw, bool accumulate,
                                std::span<std::byte> workspace) {
    if (shard.rows == 0) return;
    const int64_t tokens = token_count(labels);
    require_weight_gradient(x, exp_logits, factors, tokens, shard, dw);
    require(static_cast<int64_t>(g.size()) == tokens, "one g per label");
    require(static_cast<int64_t>(workspace.size()) >=
                vocabulary_weight_gradient_workspace_bytes(tokens, x.cols, x.dtype),
            "a workspace of the size that vocabulary_weight_gradient_workspace_bytes() returns");
    const Tensor scaled(workspace.data(), tokens, x.cols, x.dtype);
    // Where dW is accumulated, the label rows' gradients can come first, and one read of x serves
    // both.
    const bool labels_first = accumulate && dw.size() > 0;
    const auto add_label_rows = [&](ConstTensor scales, Tensor scaled_too) {
        add_rows_in_order(ctx, labels, shard.first_row, x, factors.column_range(1, 1), dw, scales,
                          scaled_too);
    };
    if (labels_first) {
        add_label_rows(factors.column_range(0, 1), scaled);
    } else if (x.size() > 0) {
        with_element_type(x.dtype, [&]<typename T>() {
            const auto run = [&]<int kCount>() {
                launch(ctx, scale_rows_kernel<T, kCount>, static_cast<unsigned>(tokens), kThreads,
                       x.as<T>(), x.stride, factors.as<float>(), factors.stride, scaled.as<T>(),
                       x.cols);
            };
            with_vectors<widest<T>()>(run, x, scaled);
        });
    }
    gemm(ctx, exp_logits, true, scaled, false, dw, accumulate);
    // The product has used the lane's workspace; the next operators may overwrite it.
    if (options.label_smoothing > 0 && dw.size() > 0) {
        const double uniform = options.label_smoothing / static_cast<double>(shard.vocab_size);
        const double* const row_sum = sum_rows(ctx, x, labels, g);
        const auto run = [&]<int kCount>() {
            launch(ctx, subtract_kernel<kCount>, blocks_for(dw.rows, 1), kThreads, dw.as<float>(),
                   dw.stride, dw.rows, dw.cols, uniform, row_sum);
        };
        with_vectors<widest<float>()>(run, dw);
    }
    if (!labels_first) add_label_rows({}, {});
}

}  // namespace vocabpipe::kernels::cuda

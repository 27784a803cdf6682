// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/bf16.hpp"
#include "kernels/check.hpp"
#include "kernels/host/exponential_row.hpp"
#include "kernels/host/gemm.hpp"
#include "kernels/host/math.hpp"
#include "kernels/host/matmul.hpp"
#include "kernels/host/parallel.hpp"
#include "kernels/host/softcap.hpp"
#include "kernels/token_totals.hpp"
#include "kernels/vocabulary_checks.hpp"

namespace vocabpipe::kernels::host {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
/// Least reference point: finite, so that z - m is never the difference of two infinities where no
/// token is allowed.
constexpr float kLowest = std::numeric_limits<float>::lowest();

/// A row's reference point m follows its logits only when one is this far above it: exp(30) = 1e13
/// is harmless in fp32 and bf16, and rescaling what was stored costs another pass over it.
constexpr float kSlack = 30;

/// Logits are computed, and turned into exponentials, in tiles that stay in the cache: rows x
/// columns, fp32. Tile sizes depend on the shape only, because the sum over the columns depends on
/// them.
constexpr int64_t kTileRows = 4096;
constexpr int64_t kTileElements = 1 << 19;  // 2 MiB
constexpr int64_t kFewestTileColumns = 256;

/// Columns that one thread sums or updates at a time.
constexpr int64_t kColumnStrip = 64;
/// Bytes of W or X read between polls of communication: less than a millisecond.
constexpr int64_t kBytesPerPoll = int64_t{16} << 20;

int64_t tile_columns(int64_t tile_rows, int64_t columns) {
    const int64_t fitting = kTileElements / std::max<int64_t>(tile_rows, 1) / 64 * 64;
    const int64_t wanted = std::max(fitting, kFewestTileColumns);
    // Equal tiles: a narrow last one would run far below the speed of the others.
    const int64_t tiles = std::max<int64_t>((columns + wanted / 2) / wanted, 1);
    return ((columns + tiles - 1) / tiles + 63) / 64 * 64;
}

int64_t token_count(std::span<const int32_t> labels) {
    return static_cast<int64_t>(labels.size());
}

float weight_of(std::span<const int32_t> labels, std::span<const float> g, int64_t n) {
    const auto at = static_cast<size_t>(n);
    return labels[at] < 0 ? 0.0F : g[at];
}

/// The label's row within the shard; -1 if the shard does not own it or the token has none.
int64_t row_of(std::span<const int32_t> labels, const VocabularyShard& shard, int64_t n) {
    const int32_t label = labels[static_cast<size_t>(n)];
    return shard.owns(label) ? label - shard.first_row : -1;
}

float* row(Tensor tensor, int64_t n) {
    return tensor.as<float>() + n * tensor.stride;
}
const float* row(ConstTensor tensor, int64_t n) {
    return tensor.as<float>() + n * tensor.stride;
}

template <typename T>
T* take(std::span<std::byte>& workspace, int64_t count) {
    const auto bytes = static_cast<size_t>(count) * sizeof(T);
    require(workspace.size() >= bytes,
            "a workspace of the size that ..._workspace_bytes() returns");
    auto* const taken = reinterpret_cast<T*>(workspace.data());
    workspace = workspace.subspan(bytes);
    return taken;
}

/// The maximum; -infinity for none; ignores NaN, which the exponentials keep.
float maximum(const float* z, int64_t count) {
    constexpr int64_t kLanes = 32;
    std::array<float, kLanes> lanes;
    lanes.fill(-kInfinity);
    int64_t j = 0;
    for (; j + kLanes <= count; j += kLanes) {
#pragma omp simd
        for (int64_t l = 0; l < kLanes; ++l) lanes[l] = z[j + l] > lanes[l] ? z[j + l] : lanes[l];
    }
    for (int64_t l = 0; j + l < count; ++l) lanes[l] = std::max(lanes[l], z[j + l]);
    return *std::max_element(lanes.begin(), lanes.end());
}

/// The two largest of z and of the values in `two`, the larger one first; NaN is ignored.
void keep_two_largest(const float* z, int64_t count, float* two) {
    constexpr int64_t kLanes = 16;
    std::array<float, kLanes> first, second;
    first.fill(-kInfinity);
    second.fill(-kInfinity);
    int64_t j = 0;
    for (; j + kLanes <= count; j += kLanes) {
#pragma omp simd
        for (int64_t l = 0; l < kLanes; ++l) {
            const float lower = z[j + l] > first[l] ? first[l] : z[j + l];
            first[l] = z[j + l] > first[l] ? z[j + l] : first[l];
            second[l] = lower > second[l] ? lower : second[l];
        }
    }
    const auto add = [two](float value) {
        if (value > two[0]) {
            two[1] = two[0];
            two[0] = value;
        } else if (value > two[1]) {
            two[1] = value;
        }
    };
    for (int64_t l = 0; l < kLanes; ++l) {
        add(first[l]);
        add(second[l]);
    }
    for (; j < count; ++j) add(z[j]);
}

/// Adds the columns z of a row, whose first has the id `first_id`, to the list of its largest
/// logits: `count` logits, then their ids; those of earlier columns are lower. NaN and -infinity
/// are left out.
void keep_best(const float* z, int64_t columns, int64_t first_id, float* logits, int64_t count) {
    constexpr int64_t kBlock = 32;
    float* const end = logits + count;
    float* const ids = end;
    for (int64_t begin = 0; begin < columns; begin += kBlock) {
        const int64_t stop = std::min(begin + kBlock, columns);
        const float least = end[-1];
        int some = 0;  // most blocks have none of the best
#pragma omp simd reduction(| : some)
        for (int64_t j = begin; j < stop; ++j) some |= static_cast<int>(z[j] > least);
        if (some == 0) continue;
        for (int64_t j = begin; j < stop; ++j) {
            if (!(z[j] > end[-1])) continue;
            float* const place = std::upper_bound(logits, end, z[j], std::greater<>());
            std::move_backward(place, end - 1, end);
            *place = z[j];
            float* const id = ids + (place - logits);
            std::move_backward(id, ids + count - 1, ids + count);
            *id = static_cast<float>(first_id + j);
        }
    }
}

float sum(const float* z, int64_t count) {
    float total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t j = 0; j < count; ++j) total += z[j];
    return total;
}

/// -infinity where bit `begin` + j of `allowed` is 0; begin is a multiple of 32.
void forbid(float* z, const uint32_t* allowed, int64_t begin, int64_t count) {
    const uint32_t* const words = allowed + begin / 32;
    for (int64_t j = 0; j < count; ++j) {
        if ((words[j / 32] >> (j % 32) & 1U) == 0) z[j] = -kInfinity;
    }
}

/// Sums over columns of a row, before rounding.
struct ExponentialSums {
    float sum = 0;       ///< of exp(z - m)
    float weighted = 0;  ///< of exp(z - m) (z - m), with kEntropy
};

/// e = exp(z - m), times the slope of z's cap, rounded to T. e may be z. `cap`: of z, the
/// temperature in it.
template <bool kCapped, bool kEntropy, typename T>
ExponentialSums exponentials(const float* z, float m, float cap, T* e, int64_t count) {
    const float inverse_cap = kCapped ? 1.0F / cap : 0.0F;
    float total = 0;
    float weighted = 0;
#pragma omp simd reduction(+ : total, weighted)
    for (int64_t j = 0; j < count; ++j) {
        const float exponent = z[j] - m;
        const float exponential = fast_exp(exponent);
        total += exponential;
        if (kEntropy) weighted += exponential * finite_exponent(exponent);
        e[j] =
            from_float<T>(kCapped ? exponential * soft_cap_slope(z[j], inverse_cap) : exponential);
    }
    return {total, weighted};
}

template <typename T>
void scale(T* e, float factor, int64_t count) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) e[j] = from_float<T>(to_float(e[j]) * factor);
}

/// State of one row after some of its columns.
struct RowState {
    double sum = 0;  ///< of exp(z - m), without the label's
    double logit_sum = 0;
    float m = 0;
    float label_logit = 0;
};

/// What records need of a row besides; null: they do not.
struct WantedOfRow {
    float* two = nullptr;       ///< the two largest logits so far
    float* best = nullptr;      ///< the list of the largest logits so far
    float* weighted = nullptr;  ///< the sum of exp(z - m) (z - m) so far
    float* logits = nullptr;    ///< z of all columns of the shard
    int64_t first_row = 0;      ///< of the shard
};

/// Adds the columns [begin, begin + count) of x w^T to a row. `label` counts from column 0 of the
/// shard; `wide`: use exponential_row(), for bf16 without a cap.
template <typename T>
void add_columns(RowState& state, float* z, T* exp_logits, int64_t begin, int64_t count,
                 int64_t label, const LossOptions& options, const WantedOfRow& wanted, bool wide) {
    float* const weighted = wanted.weighted;
    const float cap = options.logit_softcap;
    if (cap > 0) soft_cap(z, count, 1, cap);
    if (options.temperature != 1) scale(z, 1.0F / options.temperature, count);
    if (options.allowed != nullptr) forbid(z, options.allowed, begin, count);
    if (wanted.two != nullptr) keep_two_largest(z, count, wanted.two);
    if (wanted.best != nullptr) {
        keep_best(z, count, wanted.first_row + begin, wanted.best, options.records.best_count());
    }
    if (wanted.logits != nullptr) std::copy_n(z, count, wanted.logits + begin);
    T* const e = exp_logits + begin;
    // The pass over exponentials also finds the maximum; they seldom have to be computed again.
    float max = begin == 0 || !wide ? maximum(z, count) : -kInfinity;
    if (begin == 0) state = {.m = std::max(max, kLowest)};
    if (options.label_smoothing > 0) state.logit_sum += sum(z, count);
    const bool has_label = label >= begin && label < begin + count;
    if (has_label) {
        state.label_logit = z[label - begin];
        z[label - begin] = -kInfinity;  // its exponential is exactly 0
    }
    if constexpr (std::is_same_v<T, Bf16>) {
        if (wide) {
            const ExponentialRow made =
                weighted != nullptr ? exponential_row_for_entropy(z, state.m, &e->bits, count)
                                    : exponential_row(z, state.m, &e->bits, count);
            max = has_label ? std::max(made.largest, state.label_logit) : made.largest;
            if (!(max > state.m + kSlack)) {
                state.sum += made.sum;
                if (weighted != nullptr) *weighted += made.weighted;
                return;
            }
        }
    }
    if (max > state.m + kSlack) {
        const double raised = static_cast<double>(max) - state.m;
        const double factor = std::exp(-raised);
        scale(exp_logits, static_cast<float>(factor), begin);
        if (weighted != nullptr) {
            *weighted = static_cast<float>(factor * (*weighted - state.sum * raised));
        }
        state.sum *= factor;
        state.m = max;
    }
    const ExponentialSums made = [&] {
        const float capped_at = cap / options.temperature;
        const bool capped = cap > 0 && !options.caps_later;
        if (weighted != nullptr) {
            return capped ? exponentials<true, true>(z, state.m, capped_at, e, count)
                          : exponentials<false, true>(z, state.m, cap, e, count);
        }
        return capped ? exponentials<true, false>(z, state.m, capped_at, e, count)
                      : exponentials<false, false>(z, state.m, cap, e, count);
    }();
    state.sum += made.sum;
    if (weighted != nullptr) *weighted += made.weighted;
}

template <typename T>
void add_scaled(float* to, const T* from, float factor, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] += factor * to_float(from[i]);
}

/// total (cols) = sum over n of weight(n) values[n, :], the rows in order within fixed blocks.
/// Parallel over columns, so that the bits do not depend on the number of threads.
template <typename T, typename Weight>
void weighted_row_sum(Context& ctx, ConstTensor values, double* total, Weight&& weight) {
    std::fill_n(total, values.cols, 0.0);
    const int64_t strips = (values.cols + kColumnStrip - 1) / kColumnStrip;
    const int64_t rows_per_poll = std::max<int64_t>(
        kBytesPerPoll / std::max<int64_t>(values.cols * size_of(values.dtype), 1), 1);
    for (int64_t begin = 0; begin < values.rows; begin += rows_per_poll) {
        const int64_t end = std::min(begin + rows_per_poll, values.rows);
        parallel_ranges(ctx, strips, values.size(), [&](int64_t first, int64_t last) {
            for (int64_t column = first * kColumnStrip;
                 column < std::min(last * kColumnStrip, values.cols); column += kColumnStrip) {
                const int64_t width = std::min(kColumnStrip, values.cols - column);
                std::array<float, kColumnStrip> part;
                for (int64_t n = begin; n < end;) {
                    part.fill(0);
                    // Short fp32 sums, collected in double, lose no digits over many rows.
                    const int64_t stop = std::min(n + 64, end);
                    for (; n < stop; ++n) {
                        add_scaled(part.data(), values.as<T>() + n * values.stride + column,
                                   weight(n), width);
                    }
                    for (int64_t i = 0; i < width; ++i) total[column + i] += part[i];
                }
            }
        });
        ctx.poll();
    }
}

}  // namespace

int64_t vocabulary_score_workspace_bytes(int64_t tokens, int64_t rows, DType type) {
    const int64_t tile_rows = std::min(tokens, kTileRows);
    const int64_t logits = type == DType::bf16 ? tile_rows * tile_columns(tile_rows, rows) : 0;
    return logits * size_of(DType::fp32) + tile_rows * static_cast<int64_t>(sizeof(RowState));
}

void vocabulary_score(Context& ctx, ConstTensor x, ConstTensor w, std::span<const int32_t> labels,
                      const VocabularyShard& shard, const LossOptions& options, Tensor exp_logits,
                      Tensor statistics, Tensor logits, std::span<std::byte> workspace) {
    const int64_t tokens = token_count(labels);
    require_score(x, w, tokens, shard, options, exp_logits, statistics, logits);
    require_options(options);
    check_labels(labels, shard);
    const int64_t entropy = entropy_column(options.records);
    const int64_t top_two = top_two_column(options.records);
    const int64_t best = best_column(options.records);
    const int64_t best_count = options.records.best_count();
    for (int64_t n = 0; n < tokens; ++n) {
        // What an empty shard has, and no logit has been found yet.
        float* const out = row(statistics, n);
        std::fill_n(out, statistics.cols, 0.0F);
        out[0] = -kInfinity;
        if (top_two >= 0) std::fill_n(out + top_two, 2, -kInfinity);
        if (best >= 0) std::fill_n(std::fill_n(out + best, best_count, -kInfinity), best_count, -1);
    }
    if (shard.rows == 0) return;

    const bool wide = x.dtype == DType::bf16 && options.logit_softcap == 0 &&
                      multiplies_with_avx512(ctx.engine(), x.dtype);
    const int64_t most_rows = std::min(tokens, kTileRows);
    const int64_t columns = tile_columns(most_rows, shard.rows);
    auto* const states = take<RowState>(workspace, most_rows);
    auto* const tile =
        x.dtype == DType::bf16 ? take<float>(workspace, most_rows * columns) : nullptr;

    for (int64_t first = 0; first < tokens; first += kTileRows) {
        const int64_t rows = std::min(kTileRows, tokens - first);
        for (int64_t begin = 0; begin < shard.rows; begin += columns) {
            const int64_t count = std::min(columns, shard.rows - begin);
            const Tensor stored = exp_logits.row_range(first, rows);
            const Tensor z =
                tile ? Tensor(tile, rows, count, DType::fp32) : stored.column_range(begin, count);
            gemm(ctx, x.row_range(first, rows), false, w.row_range(begin, count), true, z, false);
            with_type(exp_logits.dtype, [&]<typename T>() {
                parallel_ranges(ctx, rows, z.size(), [&](int64_t from, int64_t to) {
                    for (int64_t n = from; n < to; ++n) {
                        const auto column = [&](int64_t at) {
                            return at >= 0 ? row(statistics, first + n) + at : nullptr;
                        };
                        const WantedOfRow wanted{
                            .two = column(top_two),
                            .best = column(best),
                            .weighted = column(entropy),
                            .logits = logits ? row(logits, first + n) : nullptr,
                            .first_row = shard.first_row};
                        add_columns(states[n], row(z, n), stored.as<T>() + n * stored.stride, begin,
                                    count, row_of(labels, shard, first + n), options, wanted, wide);
                    }
                });
            });
            ctx.poll();
        }
        for (int64_t n = 0; n < rows; ++n) {
            const RowState& state = states[n];
            float* const out = row(statistics, first + n);
            out[0] = state.m;
            out[1] = static_cast<float>(state.sum);
            out[2] = state.label_logit;
            out[3] = static_cast<float>(state.logit_sum);
        }
    }
}

void vocabulary_input_product(Context& ctx, ConstTensor exp_logits, ConstTensor w, Tensor u) {
    if (exp_logits.cols == 0) {
        for (int64_t n = 0; n < u.rows; ++n) std::fill_n(row(u, n), u.cols, 0.0F);
        return;
    }
    gemm(ctx, exp_logits, false, w, false, u, false);
}

void combine_statistics(Context& ctx, ConstTensor by_shard, std::span<const int32_t> labels,
                        const TokenGradients& gradients, const VocabularyShard& mine, int my_shard,
                        const LossOptions& options, Tensor factors, std::span<float> records) {
    const int64_t tokens = token_count(labels);
    require_combination(by_shard, tokens, gradients, my_shard, options, factors, records);
    require_options(options);
    const LossTerms terms = loss_terms(options, mine);
    const StatisticsOfShards statistics = statistics_of_shards(by_shard, tokens, options);
    const std::vector<TokenRecord> wanted = options.records.list();
    // About 20 ns per exponential: some thousand are worth a team.
    parallel_ranges(ctx, tokens, by_shard.rows * 16, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) {
            const int32_t label = labels[static_cast<size_t>(n)];
            const TokenTotals totals = fold_token(statistics, n, label);
            if (factors) {
                const bool by_entropy = !gradients.entropy.empty();
                const double weight = weight_of(labels, gradients.loss, n);
                const double eta = by_entropy ? weight_of(labels, gradients.entropy, n) : 0;
                TokenFactors made;
                if ((weight != 0 || eta != 0) && mine.rows > 0) {
                    const double m = row(by_shard, my_shard * tokens + n)[0];
                    made = by_entropy ? factors_of(totals, terms, m, weight, eta)
                                      : factors_of(totals, terms, m, weight);
                }
                row(factors, n)[0] = static_cast<float>(made.softmax);
                row(factors, n)[1] = mine.owns(label) ? static_cast<float>(made.label) : 0.0F;
                if (by_entropy) {
                    row(factors, n)[2] = static_cast<float>(made.entropy);
                    row(factors, n)[3] =
                        mine.rows > 0 ? row(by_shard, my_shard * tokens + n)[0] : 0.0F;
                }
            }
            for (size_t i = 0; i < wanted.size() && !records.empty(); ++i) {
                if (wanted[i] == TokenRecord::label_rank) continue;
                const int64_t numbers = options.records.numbers_of(wanted[i]);
                float* const made =
                    records.data() + options.records.index_of(wanted[i]) * tokens + n;
                if (label < 0) {
                    for (int64_t k = 0; k < numbers; ++k) made[k * tokens] = 0;
                } else if (wanted[i] == TokenRecord::top_logprobs) {
                    fold_best(
                        statistics, n, totals, label,
                        {.logprobs = made, .ids = made + numbers / 2 * tokens, .stride = tokens});
                } else {
                    *made = static_cast<float>(record_of(wanted[i], totals, terms));
                }
            }
        }
    });
}

void label_ranks(Context& ctx, ConstTensor logits, ConstTensor by_shard,
                 std::span<const int32_t> labels, const VocabularyShard& shard,
                 std::span<float> counts) {
    require_label_ranks(logits, by_shard, labels, shard, counts);
    const int64_t tokens = token_count(labels);
    parallel_ranges(ctx, tokens, tokens * shard.rows, [&](int64_t first, int64_t last) {
        for (int64_t n = first; n < last; ++n) {
            const int32_t label = labels[static_cast<size_t>(n)];
            float& count = counts[static_cast<size_t>(n)];
            count = 0;
            if (label < 0) continue;
            float own = 0;  // the label's logit: all shards but one have 0
            for (int64_t at = n; at < by_shard.rows; at += tokens) own += row(by_shard, at)[2];
            const float* const z = shard.rows > 0 ? row(logits, n) : nullptr;
            // Equal logits: the row with the lower id comes first, unless it is not allowed.
            const int64_t lower = std::clamp<int64_t>(label - shard.first_row, 0, shard.rows);
            int32_t before = 0;
#pragma omp simd reduction(+ : before)
            for (int64_t j = 0; j < lower; ++j) {
                before +=
                    static_cast<int32_t>(z[j] >= own) & static_cast<int32_t>(z[j] > -kInfinity);
            }
#pragma omp simd reduction(+ : before)
            for (int64_t j = lower; j < shard.rows; ++j) before += static_cast<int32_t>(z[j] > own);
            count = static_cast<float>(before + static_cast<int32_t>(shard.owns(label)));
        }
    });
}

void weigh_by_entropy(Context& ctx, const LossOptions& options, Tensor exp_logits, Tensor factors) {
    require_weigh_by_entropy(options, exp_logits, factors);
    const float inverse_cap =
        options.logit_softcap > 0 ? options.temperature / options.logit_softcap : 0.0F;
    // Some rows at a time, between polls.
    const int64_t rows_per_poll = std::max<int64_t>(
        kBytesPerPoll / std::max<int64_t>(exp_logits.cols * size_of(exp_logits.dtype), 1), 1);
    with_type(exp_logits.dtype, [&]<typename T>() {
        for (int64_t begin = 0; begin < exp_logits.rows; begin += rows_per_poll) {
            const int64_t rows = std::min(rows_per_poll, exp_logits.rows - begin);
            parallel_ranges(ctx, rows, rows * exp_logits.cols * 8, [&](int64_t from, int64_t to) {
                for (int64_t n = begin + from; n < begin + to; ++n) {
                    T* const e = exp_logits.as<T>() + n * exp_logits.stride;
                    const float c = row(factors, n)[0];
                    const float h = row(factors, n)[2];
                    const float m = row(factors, n)[3];
#pragma omp simd
                    for (int64_t j = 0; j < exp_logits.cols; ++j) {
                        const float value = to_float(e[j]);
                        const float log = fast_log(value);
                        const float slope = soft_cap_slope(m + log, inverse_cap);  // no cap: 1
                        e[j] = from_float<T>(value * (c + h * log) * slope);
                    }
                    row(factors, n)[0] = 1;
                }
            });
            ctx.poll();
        }
    });
}

int64_t vocabulary_input_gradient_workspace_bytes(int64_t hidden) {
    return hidden * static_cast<int64_t>(sizeof(double));
}

void vocabulary_input_gradient(Context& ctx, Tensor u, ConstTensor factors, ConstTensor w,
                               std::span<const int32_t> labels, std::span<const float> g,
                               const VocabularyShard& shard, const LossOptions& options,
                               std::span<std::byte> workspace) {
    const int64_t tokens = token_count(labels);
    require_input_gradient(u, factors, w, tokens, shard);
    const bool smooth = options.label_smoothing > 0 && shard.rows > 0;
    const double uniform = options.label_smoothing / static_cast<double>(shard.vocab_size);
    double* const row_sum = smooth ? take<double>(workspace, u.cols) : nullptr;
    with_type(w.dtype, [&]<typename T>() {
        if (smooth) weighted_row_sum<T>(ctx, w, row_sum, [](int64_t) { return 1.0F; });
        parallel_ranges(ctx, tokens, u.size(), [&](int64_t begin, int64_t end) {
            for (int64_t n = begin; n < end; ++n) {
                float* const out = row(u, n);
                const float* const factor = row(factors, n);
                const float c = factor[0];
#pragma omp simd
                for (int64_t i = 0; i < u.cols; ++i) out[i] *= c;
                if (const int64_t label = row_of(labels, shard, n); label >= 0) {
                    add_scaled(out, w.as<T>() + label * w.stride, factor[1], u.cols);
                }
                if (!smooth) continue;
                const double share = weight_of(labels, g, n) * uniform;
#pragma omp simd
                for (int64_t i = 0; i < u.cols; ++i) {
                    out[i] = static_cast<float>(out[i] - share * row_sum[i]);
                }
            }
        });
    });
}

int64_t vocabulary_weight_gradient_workspace_bytes(int64_t tokens, int64_t hidden, DType type) {
    return hidden * static_cast<int64_t>(sizeof(double)) + tokens * hidden * size_of(type);
}

void vocabulary_weight_gradient(Context& ctx, ConstTensor x, ConstTensor exp_logits,
                                ConstTensor factors, std::span<const int32_t> labels,
                                std::span<const float> g, const VocabularyShard& shard,
                                const LossOptions& options, Tensor dw, bool accumulate,
                                std::span<std::byte> workspace) {
    if (shard.rows == 0) return;
    const int64_t tokens = token_count(labels);
    require_weight_gradient(x, exp_logits, factors, tokens, shard, dw);
    const int64_t hidden = x.cols;
    auto* const row_sum = take<double>(workspace, hidden);

    with_type(x.dtype, [&]<typename T>() {
        const Tensor scaled(take<T>(workspace, tokens * hidden), tokens, hidden, x.dtype);
        parallel_ranges(ctx, tokens, x.size(), [&](int64_t begin, int64_t end) {
            for (int64_t n = begin; n < end; ++n) {
                const T* const in = x.as<T>() + n * x.stride;
                T* const out = scaled.as<T>() + n * hidden;
                const float c = row(factors, n)[0];
#pragma omp simd
                for (int64_t i = 0; i < hidden; ++i) out[i] = from_float<T>(c * to_float(in[i]));
            }
        });
        const bool smooth = options.label_smoothing > 0;
        const double uniform = options.label_smoothing / static_cast<double>(shard.vocab_size);
        if (smooth) {
            weighted_row_sum<T>(ctx, x, row_sum,
                                [&](int64_t n) { return weight_of(labels, g, n); });
        }
        // Tiles of dw that stay in the cache: a few percent faster than one product.
        const int64_t tile_rows = tile_columns(hidden, shard.rows);
        for (int64_t begin = 0; begin < shard.rows; begin += tile_rows) {
            const int64_t count = std::min(tile_rows, shard.rows - begin);
            const Tensor tile = dw.row_range(begin, count);
            gemm(ctx, exp_logits.column_range(begin, count), true, scaled, false, tile, accumulate);
            if (smooth) {
                parallel_ranges(ctx, count, tile.size(), [&](int64_t from, int64_t to) {
                    for (int64_t j = from; j < to; ++j) {
                        float* const out = row(tile, j);
#pragma omp simd
                        for (int64_t i = 0; i < hidden; ++i) {
                            out[i] = static_cast<float>(out[i] - uniform * row_sum[i]);
                        }
                    }
                });
            }
            ctx.poll();
        }

        // Two tokens may share a label, so threads split columns, each adding the tokens in order.
        const int64_t strips = (hidden + kColumnStrip - 1) / kColumnStrip;
        parallel_ranges(ctx, strips, x.size(), [&](int64_t first, int64_t last) {
            const int64_t begin = first * kColumnStrip;
            const int64_t count = std::min(last * kColumnStrip, hidden) - begin;
            for (int64_t n = 0; n < tokens; ++n) {
                const int64_t label = row_of(labels, shard, n);
                if (label < 0) continue;
                add_scaled(row(dw, label) + begin, x.as<T>() + n * x.stride + begin,
                           row(factors, n)[1], count);
            }
        });
    });
}

}  // namespace vocabpipe::kernels::host

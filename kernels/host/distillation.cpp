// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/bf16.hpp"
#include "kernels/distillation_checks.hpp"
#include "kernels/distillation_token.hpp"
#include "kernels/host/dot.hpp"
#include "kernels/host/matmul.hpp"
#include "kernels/host/operators.hpp"
#include "kernels/host/parallel.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::host {

namespace {

/// Hidden columns that one thread updates at a time, so that two tokens may have the same entry.
constexpr int64_t kStripColumns = 64;

const float* number(ConstTensor tensor, int64_t row, int64_t col) {
    return tensor.as<float>() + row * tensor.stride + col;
}

/// The row of an entry within the shard: of the label (entry 0) or of the list; -1: another shard
/// owns it, or there is none.
int64_t shard_row(std::span<const int32_t> labels, ConstTensor ids, const VocabularyShard& shard,
                  int64_t n, int64_t entry) {
    const int32_t id = entry == 0 ? labels[static_cast<size_t>(n)]
                                  : static_cast<int32_t>(*number(ids, entry - 1, n));
    return shard.owns(id) ? id - shard.first_row : -1;
}

template <typename T>
void add_row(float* to, const T* from, float factor, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] += factor * to_float(from[i]);
}

/// z of x w in double: soft-capped, and over the temperature.
float finished_logit(double z, int64_t row, const LossOptions& options) {
    if (options.allowed != nullptr && (options.allowed[row / 32] >> (row % 32) & 1U) == 0) {
        return -std::numeric_limits<float>::infinity();
    }
    const double cap = options.logit_softcap;
    return static_cast<float>((cap > 0 ? cap * std::tanh(z / cap) : z) / options.temperature);
}

/// Throws UsageError for an id that is no row of the vocabulary; a negative one is no entry.
void check_listed_ids(ConstTensor ids, const VocabularyShard& shard) {
    for (int64_t i = 0; i < ids.rows; ++i) {
        for (int64_t n = 0; n < ids.cols; ++n) {
            if (const float id = *number(ids, i, n); !(id < static_cast<float>(shard.vocab_size))) {
                throw UsageError("id " + std::to_string(id) + " in the list of token " +
                                 std::to_string(n) + " is outside the vocabulary of " +
                                 std::to_string(shard.vocab_size) +
                                 " rows; an id must be below that number, or -1 for no entry");
            }
        }
    }
}

}  // namespace

void listed_logits(Context& ctx, ConstTensor x, ConstTensor w, ConstTensor ids,
                   const VocabularyShard& shard, const LossOptions& options, Tensor logits) {
    require_listed_logits(x, w, ids, shard, logits);
    check_listed_ids(ids, shard);
    with_type(x.dtype, [&]<typename T>() {
        parallel_ranges(ctx, x.rows, ids.size() * x.cols, [&](int64_t from, int64_t to) {
            for (int64_t n = from; n < to; ++n) {
                for (int64_t i = 0; i < ids.rows; ++i) {
                    const int64_t row = shard_row({}, ids, shard, n, 1 + i);
                    logits.as<float>()[n * logits.stride + i] =
                        row < 0 ? 0.0F
                                : finished_logit(dot(x.as<T>() + n * x.stride,
                                                     w.as<T>() + row * w.stride, x.cols),
                                                 row, options);
                }
            }
        });
    });
}

void distillation_loss(Context& ctx, const DistillationOptions& options, const LossOptions& layer,
                       ConstTensor by_shard, std::span<const int32_t> labels,
                       std::span<const float> g, std::span<const float> logprob,
                       std::span<const float> log_z, ConstTensor teacher, std::span<float> loss,
                       std::span<float> gradient, Tensor slopes) {
    require_distillation_loss(options, by_shard, labels, g, logprob, log_z, teacher, loss, gradient,
                              slopes);
    const int64_t tokens = std::ssize(labels);
    // About 30 ns per entry.
    parallel_ranges(ctx, tokens, tokens * options.top_k * 32, [&](int64_t from, int64_t to) {
        for (int64_t token = from; token < to; ++token) {
            const auto n = static_cast<size_t>(token);
            float* const out = slopes.as<float>() + token * slopes.stride;
            DistilledLoss made;
            if (labels[n] < 0) {
                std::fill_n(out, slopes.cols, 0.0F);
            } else {
                made = distilled_loss(options, layer,
                                      {.logits = number(by_shard, token, 0),
                                       .shards = by_shard.rows / tokens,
                                       .shard_stride = tokens * by_shard.stride,
                                       .teacher = number(teacher, 0, token),
                                       .teacher_stride = teacher.stride,
                                       .logprob = logprob[n],
                                       .log_z = log_z[n],
                                       .weight = g[n],
                                       .slopes = out});
            }
            loss[n] = static_cast<float>(made.loss);
            gradient[n] = static_cast<float>(made.gradient);
        }
    });
}

void listed_input_gradient(Context& ctx, ConstTensor slopes, ConstTensor w,
                           std::span<const int32_t> labels, ConstTensor ids,
                           const VocabularyShard& shard, Tensor u) {
    require_listed_gradient(slopes, labels, ids);
    require_listed_rows(u, w, std::ssize(labels), shard);
    with_type(w.dtype, [&]<typename T>() {
        parallel_ranges(ctx, u.rows, slopes.cols * u.size(), [&](int64_t from, int64_t to) {
            for (int64_t n = from; n < to; ++n) {
                for (int64_t entry = 0; entry < slopes.cols; ++entry) {
                    const int64_t row = shard_row(labels, ids, shard, n, entry);
                    if (row < 0) continue;
                    add_row(u.as<float>() + n * u.stride, w.as<T>() + row * w.stride,
                            *number(slopes, n, entry), u.cols);
                }
            }
        });
    });
}

void listed_weight_gradient(Context& ctx, ConstTensor slopes, ConstTensor x,
                            std::span<const int32_t> labels, ConstTensor ids,
                            const VocabularyShard& shard, Tensor dw) {
    if (shard.rows == 0) return;
    require_listed_gradient(slopes, labels, ids);
    require_listed_rows(dw, x, shard.rows, {.rows = std::ssize(labels)});
    const int64_t strips = (x.cols + kStripColumns - 1) / kStripColumns;
    with_type(x.dtype, [&]<typename T>() {
        parallel_ranges(ctx, strips, slopes.cols * x.size(), [&](int64_t first, int64_t last) {
            const int64_t begin = first * kStripColumns;
            const int64_t count = std::min(last * kStripColumns, x.cols) - begin;
            for (int64_t n = 0; n < x.rows; ++n) {
                for (int64_t entry = 0; entry < slopes.cols; ++entry) {
                    const int64_t row = shard_row(labels, ids, shard, n, entry);
                    if (row < 0) continue;
                    add_row(dw.as<float>() + row * dw.stride + begin,
                            x.as<T>() + n * x.stride + begin, *number(slopes, n, entry), count);
                }
            }
        });
    });
}

}  // namespace vocabpipe::kernels::host

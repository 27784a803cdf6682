// SPDX-License-Identifier: Apache-2.0
// How scores follow from products, and the softmax of whole rows of scores with its gradient, for
// machines without AVX-512: private to attention.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/bf16.hpp"
#include "kernels/host/attention_blocks.hpp"
#include "kernels/host/math.hpp"
#include "kernels/host/softcap.hpp"
#include "vocabpipe/attention_shape.hpp"

namespace vocabpipe::kernels::host {

/// How a score follows from q k: scale q k, or cap tanh(scale q k / cap).
struct Score {
    float scale;
    float cap;

    explicit Score(AttentionShape shape)
        : scale(shape.scale != 0 ? shape.scale
                                 : 1.0F / std::sqrt(static_cast<float>(shape.head_size))),
          cap(shape.softcap) {}
};

/// Row loops run over whole vectors; columns around the visible keys are masked out beforehand.
inline constexpr int64_t kVector = 16;
static_assert(kBlockRows % kVector == 0);

/// The vectors that hold visible keys.
inline Columns whole_vectors(Columns visible) {
    return {visible.begin / kVector * kVector, (visible.end + kVector - 1) / kVector * kVector};
}

inline void mask_scores(float* scores, Columns visible, Columns vectors) {
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    std::fill(scores + vectors.begin, scores + visible.begin, kNever);
    std::fill(scores + visible.end, scores + vectors.end, kNever);
}

/// Fills the columns outside `vectors` of a row of `keys` columns with zeros.
template <typename T>
void clear_around(T* row, Columns vectors, int64_t keys) {
    std::fill(row, row + vectors.begin, T{});
    if (vectors.end < keys) std::fill(row + vectors.end, row + keys, T{});
}

/// The maximum of `padded` scores, a multiple of kVector.
inline float row_maximum(const float* scores, int64_t padded) {
    // An explicit vector: compilers that honour NaN do not vectorise a max reduction.
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

/// scores = exp(scale * (scores - maximum)). Not inlined: otherwise clang 14 merges loads of the
/// loop before into this one and gives up vectorising it.
[[gnu::noinline]] inline void exponentials(float* scores, int64_t padded, float scale,
                                           float maximum) {
#pragma omp simd
    for (int64_t j = 0; j < padded; ++j) scores[j] = fast_exp(scale * (scores[j] - maximum));
}

/// Turns a row of products q k into exp(score - maximum), not normalised, over the visible keys and
/// zeros around them. Returns the sum; `maximum` becomes the scores' maximum.
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
    mask_scores(scores, visible, vectors);
    const float largest = row_maximum(first, padded);
    exponentials(first, padded, scale, largest);
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < padded; ++j) sum += first[j];
    if constexpr (!std::is_same_v<T, float>) {  // fp32 probabilities overwrite the scores
        T* const to = probabilities + vectors.begin;
#pragma omp simd
        for (int64_t j = 0; j < padded; ++j) to[j] = from_float<T>(first[j]);
    }
    clear_around(probabilities, vectors, keys);
    maximum = scale * largest;
    return sum;
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
    mask_scores(scores, visible, vectors);
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

}  // namespace vocabpipe::kernels::host

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/bf16.hpp"

namespace vocabpipe::kernels::host {

/// An explicit vector: a compiler's own reduction may depend on the alignment of the numbers.
inline constexpr int64_t kDotLanes = 16;
using DotLanes [[gnu::vector_size(kDotLanes * sizeof(float))]] = float;

[[nodiscard]] inline DotLanes load_lanes(const float* from) {
    DotLanes lanes;
    std::memcpy(&lanes, from, sizeof(lanes));
    return lanes;
}
[[nodiscard]] inline DotLanes load_lanes(const Bf16* from) {
    using Halves [[gnu::vector_size(kDotLanes * sizeof(uint16_t))]] = uint16_t;
    using Words [[gnu::vector_size(kDotLanes * sizeof(uint32_t))]] = uint32_t;
    Halves halves;
    std::memcpy(&halves, from, sizeof(halves));
    const Words words = __builtin_convertvector(halves, Words) << 16;
    DotLanes lanes;
    std::memcpy(&lanes, &words, sizeof(lanes));
    return lanes;
}

/// Sum of a_i b_i in fp32, in an order that depends on `count` only.
template <typename A, typename B>
[[nodiscard]] float dot(const A* a, const B* b, int64_t count) {
    constexpr int kChains = 4;  // additions in flight
    DotLanes sums[kChains] = {};
    int64_t i = 0;
    for (; i + kChains * kDotLanes <= count; i += kChains * kDotLanes) {
        for (int chain = 0; chain < kChains; ++chain) {
            const int64_t at = i + chain * kDotLanes;
            sums[chain] += load_lanes(a + at) * load_lanes(b + at);
        }
    }
    for (; i + kDotLanes <= count; i += kDotLanes) {
        sums[0] += load_lanes(a + i) * load_lanes(b + i);
    }
    const DotLanes all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float sum = 0.0F;
    for (int lane = 0; lane < kDotLanes; ++lane) sum += all[lane];
    for (; i < count; ++i) sum += to_float(a[i]) * to_float(b[i]);
    return sum;
}

}  // namespace vocabpipe::kernels::host

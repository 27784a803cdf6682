// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/host/engine.hpp"
#include "vocabpipe/context.hpp"

namespace vocabpipe::kernels::host {

/// Below this many elements, waking a team costs more than it saves.
inline constexpr int64_t kParallelElements = 32768;

/// Calls body(begin, end) on contiguous parts of [0, count), one per thread. `elements` is the work
/// of the whole loop. Only for loops whose items are independent of each other, so that results do
/// not depend on the number of threads.
template <typename Body>
void parallel_ranges(Context& ctx, int64_t count, int64_t elements, Body&& body) {
    const int64_t threads =
        elements < kParallelElements ? 1 : std::min<int64_t>(ctx.threads(), count);
    if (threads <= 1) {
        if (count > 0) body(int64_t{0}, count);
        return;
    }
    const auto team = static_cast<int>(threads);
#pragma omp parallel for num_threads(team) schedule(static)
    for (int64_t part = 0; part < threads; ++part) {
        body(count * part / threads, count * (part + 1) / threads);
    }
}

}  // namespace vocabpipe::kernels::host

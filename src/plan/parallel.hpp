// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace vocabpipe {

/// Runs work(i) for every i < count on `threads` threads, or as many as the machine runs at once if
/// 0. Where `stop` is set and returns true, no further work begins. The first exception by index is
/// thrown.
void for_all(size_t count, int threads, const std::function<bool()>& stop,
             const std::function<void(size_t)>& work);

}  // namespace vocabpipe

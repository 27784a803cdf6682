// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

namespace vocabpipe::testing {

/// VOCABPIPE_FULL is set (tests/run.sh --full): products of all values instead of slices.
[[nodiscard]] inline bool full_run() {
    return std::getenv("VOCABPIPE_FULL") != nullptr;
}

}  // namespace vocabpipe::testing

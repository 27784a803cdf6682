// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

namespace vocabpipe {

/// YaRN's factor of attention for positions stretched by `factor` (Peng et al. 2023, section 3.4),
/// weighted by `mscale` as in DeepSeek's models.
[[nodiscard]] inline double yarn_mscale(double factor, double mscale) {
    return 0.1 * mscale * std::log(std::max(factor, 1.0)) + 1;
}

}  // namespace vocabpipe
